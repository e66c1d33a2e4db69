// SPDX-License-Identifier: Apache-2.0
/*
 * py_map.c - the type Map: the bytes of a leaf where they are stored, as a buffer.
 */
#include "tools/python/py_module.h"

#include <string.h>

struct py_map {
	PyObject ob_base;
	struct pytreefs_map *map; /* a reference */
	void *at;
	size_t size;
	int is_writable;
};

PyTypeObject *py_map_type;

static int map_buffer(PyObject *self, Py_buffer *view, int flags)
{
	struct py_map *m = (struct py_map *)self;
	return PyBuffer_FillInfo(view, self, m->at, (Py_ssize_t)m->size, !m->is_writable, flags);
}

static void map_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	pytreefs_unmap(((struct py_map *)self)->map);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	release(self);
	Py_DECREF(type);
}

static PyType_Slot map_slots[] = {
	{ Py_tp_doc, (void *)PyDoc_STR("The bytes of a leaf in a mapped file.") },
	{ Py_tp_dealloc, map_dealloc },
	{ Py_bf_getbuffer, map_buffer },
	{ 0 },
};
PyType_Spec py_map_spec = {
	.name = "pytreefs._pytreefs.Map",
	.basicsize = sizeof(struct py_map),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = map_slots,
};

struct py_maps {
	size_t n;
	struct pytreefs_mapped *leaf;
	PyObject **name; /* bytes */
};

static int maps_init(struct py_maps *m, PyObject *list)
{
	Py_ssize_t n = PyList_Size(list);
	if (n < 0)
		return -1;
	m->n = (size_t)n;
	m->leaf = PyMem_Calloc(m->n + 1, sizeof(*m->leaf));
	m->name = PyMem_Calloc(m->n + 1, sizeof(PyObject *));
	if (!m->leaf || !m->name) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		unsigned long long version;
		PyObject *name;
		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "UK", &name, &version))
			return -1;
		m->name[i] = py_encode(name);
		if (!m->name[i])
			return -1;
		m->leaf[i].name = PyBytes_AsString(m->name[i]);
		m->leaf[i].version = version;
	}
	return 0;
}

/* (Map, strides) of a leaf, None for one that is to be read, (code, text) of one that failed. */
static PyObject *map_result(struct pytreefs_mapped *m, int is_writable)
{
	if (m->result > 0)
		Py_RETURN_NONE;
	if (m->result < 0) {
		const char *why = m->error ? m->error : strerror(-m->result);
		PyObject *text = py_decode(why, strlen(why));
		return text ? Py_BuildValue("iN", m->result, text) : NULL;
	}
	struct py_map *made = (struct py_map *)PyType_GenericAlloc(py_map_type, 0);
	if (!made)
		return NULL;
	made->map = m->map;
	made->at = m->at;
	made->size = m->size;
	made->is_writable = is_writable;
	m->map = NULL;
	const size_t most = sizeof(m->strides) / sizeof(m->strides[0]);
	PyObject *strides = PyTuple_New((Py_ssize_t)most);
	for (size_t i = 0; strides && i < most; i++) {
		PyObject *stride = PyLong_FromLongLong(m->strides[i]);
		if (!stride || PyTuple_SetItem(strides, (Py_ssize_t)i, stride) < 0) {
			Py_DECREF(strides);
			strides = NULL;
		}
	}
	if (!strides) {
		Py_DECREF((PyObject *)made);
		return NULL;
	}
	return Py_BuildValue("NN", (PyObject *)made, strides);
}

PyObject *py_map(PyObject *self, PyObject *args)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	PyObject *list;
	int is_writable;
	if (!PyArg_ParseTuple(args, "Op", &list, &is_writable))
		return NULL;
	struct py_maps m = { 0 };
	struct pytreefs *ck = maps_init(&m, list) < 0 ? NULL : py_use(c);
	PyObject *ret = NULL;
	if (ck) {
		int r;
		Py_BEGIN_ALLOW_THREADS r =
			pytreefs_map(ck, m.leaf, m.n, is_writable ? PYTREEFS_MAP_WRITE : 0);
		Py_END_ALLOW_THREADS py_done(c);
		size_t failed = 0;
		for (size_t i = 0; i < m.n; i++)
			failed += m.leaf[i].result < 0;
		ret = r < 0 && !failed ? py_fail(NULL) : PyList_New(0);
	}
	for (size_t i = 0; ret && i < m.n; i++) {
		PyObject *one = map_result(&m.leaf[i], is_writable);
		if (!one || PyList_Append(ret, one) < 0) {
			Py_DECREF(ret);
			ret = NULL;
		}
		Py_XDECREF(one);
	}
	if (m.leaf)
		pytreefs_mapped_release(m.leaf, m.n);
	for (size_t i = 0; m.name && i < m.n; i++)
		Py_XDECREF(m.name[i]);
	PyMem_Free(m.leaf);
	PyMem_Free(m.name);
	return ret;
}
