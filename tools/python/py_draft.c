// SPDX-License-Identifier: Apache-2.0
/* py_draft.c - the type Draft: a checkpoint that is being written. */
#include "tools/python/py_module.h"

#include <stdio.h>
#include <string.h>

struct py_draft {
	PyObject ob_base;
	struct pytreefs_draft *d;
	PyObject *path;
	int is_busy; /* a call is in progress */
};

static int draft_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct py_draft *w = (struct py_draft *)self;
	PyObject *path, *options;
	unsigned flags;
	if (!PyArg_ParseTuple(args, "UUI", &path, &options, &flags))
		return -1;
	if (w->d) {
		PyErr_SetString(PyExc_ValueError, "it has begun");
		return -1;
	}
	PyObject *path_bytes = py_encode(path), *option_bytes = py_encode(options);
	int r = -1;
	if (path_bytes && option_bytes) {
		const char *p = PyBytes_AsString(path_bytes), *o = PyBytes_AsString(option_bytes);
		struct pytreefs_draft *d = NULL;
		Py_BEGIN_ALLOW_THREADS r = pytreefs_draft_begin(p, *o ? o : NULL, flags, &d);
		Py_END_ALLOW_THREADS if (r < 0)
		{
			py_fail(path);
		}
		else
		{
			w->d = d;
			Py_INCREF(path);
			w->path = path;
		}
	}
	Py_XDECREF(path_bytes);
	Py_XDECREF(option_bytes);
	return r < 0 ? -1 : 0;
}

static void abort_now(struct py_draft *w)
{
	struct pytreefs_draft *d = w->d;
	w->d = NULL;
	Py_BEGIN_ALLOW_THREADS pytreefs_draft_abort(d);
	Py_END_ALLOW_THREADS
}

static void draft_dealloc(PyObject *self)
{
	struct py_draft *w = (struct py_draft *)self;
	PyTypeObject *type = Py_TYPE(self);
	if (w->d)
		abort_now(w);
	Py_XDECREF(w->path);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	release(self);
	Py_DECREF(type);
}

static struct pytreefs_draft *draft_use(struct py_draft *w)
{
	if (!w->d || w->is_busy) {
		PyErr_SetString(PyExc_ValueError,
				w->d ? "another thread is using the draft" : "the draft has ended");
		return NULL;
	}
	w->is_busy = 1;
	return w->d;
}

/* ---- values ---- */

/* Memory of a value. */
struct piece {
	struct pytreefs_key *key;
	PyObject **text; /* bytes object of each key */
	size_t n_keys;
	Py_buffer data;
	int has_data;
	uint64_t *shape;
	int64_t *strides;
};

static void piece_release(struct piece *p)
{
	for (size_t i = 0; p->text && i < p->n_keys; i++)
		Py_XDECREF(p->text[i]);
	if (p->has_data)
		PyBuffer_Release(&p->data);
	PyMem_Free(p->key);
	PyMem_Free(p->text);
	PyMem_Free(p->shape);
	PyMem_Free(p->strides);
}

/* Parse a sequence of keys: a str is a name, an int is a position. */
static int parse_keys(PyObject *keys, struct piece *p)
{
	Py_ssize_t n = PyTuple_Size(keys);
	if (n < 0)
		return -1;
	p->key = PyMem_Calloc((size_t)n + 1, sizeof(*p->key));
	p->text = PyMem_Calloc((size_t)n + 1, sizeof(*p->text));
	if (!p->key || !p->text) {
		PyErr_NoMemory();
		return -1;
	}
	p->n_keys = (size_t)n;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *key = PyTuple_GetItem(keys, i);
		int is_index = PyLong_Check(key);
		PyObject *text = is_index ? PyObject_Str(key) : NULL;
		p->text[i] = py_encode(is_index && text ? text : key);
		Py_XDECREF(text);
		char *bytes;
		Py_ssize_t size;
		if (!p->text[i] || PyBytes_AsStringAndSize(p->text[i], &bytes, &size) < 0)
			return -1;
		p->key[i] =
			(struct pytreefs_key){ bytes, (size_t)size,
					       is_index ? PYTREEFS_KEY_INDEX : PYTREEFS_KEY_NAME };
	}
	return 0;
}

/*
 * Parse (keys, kind, dtype or None, buffer or None). Shape and strides are those of the buffer; a
 * text is a row of bytes.
 */
static int parse_value(PyObject *tuple, struct piece *p, struct pytreefs_value *value)
{
	PyObject *keys, *data;
	int kind;
	if (!PyArg_ParseTuple(tuple, "OizO", &keys, &kind, &value->dtype, &data) ||
	    parse_keys(keys, p) < 0)
		return -1;
	value->kind = (enum pytreefs_kind)kind;
	value->key = p->key;
	value->n_keys = p->n_keys;
	if (data == Py_None)
		return 0;
	if (PyObject_GetBuffer(data, &p->data, PyBUF_STRIDED_RO) < 0)
		return -1;
	p->has_data = 1;
	value->data = p->data.buf;
	value->size = (size_t)p->data.len;
	if (value->kind != PYTREEFS_ARRAY && value->kind != PYTREEFS_SCALAR)
		return 0;
	size_t n = (size_t)p->data.ndim;
	p->shape = PyMem_Calloc(n + 1, sizeof(*p->shape));
	p->strides = PyMem_Calloc(n + 1, sizeof(*p->strides));
	if (!p->shape || !p->strides) {
		PyErr_NoMemory();
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		p->shape[i] = (uint64_t)p->data.shape[i];
		p->strides[i] = p->data.strides[i];
	}
	value->ndim = n;
	value->shape = p->shape;
	value->strides = PyBuffer_IsContiguous(&p->data, 'C') ? NULL : p->strides;
	return 0;
}

static PyObject *draft_put(PyObject *self, PyObject *args)
{
	struct py_draft *w = (struct py_draft *)self;
	PyObject *list, *fn;
	if (!PyArg_ParseTuple(args, "OO", &list, &fn))
		return NULL;
	Py_ssize_t n = PyList_Size(list);
	if (n < 0)
		return NULL;
	struct pytreefs_value *value = PyMem_Calloc((size_t)n + 1, sizeof(*value));
	struct piece *piece = PyMem_Calloc((size_t)n + 1, sizeof(*piece));
	int ok = value && piece;
	if (!ok)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; ok && i < n; i++)
		ok = parse_value(PyList_GetItem(list, i), &piece[i], &value[i]) == 0;
	struct pytreefs_draft *d = ok ? draft_use(w) : NULL;
	if (d) {
		struct py_progress p;
		py_progress_begin(&p, fn);
		int r = pytreefs_draft_put(d, value, (size_t)n, &p.progress);
		py_progress_end(&p);
		w->is_busy = 0;
		if (r < 0 && !p.raised)
			py_fail(NULL);
	}
	for (Py_ssize_t i = 0; piece && i < n; i++)
		piece_release(&piece[i]);
	PyMem_Free(piece);
	PyMem_Free(value);
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *draft_attribute(PyObject *self, PyObject *args)
{
	struct py_draft *w = (struct py_draft *)self;
	PyObject *keys;
	const char *attribute, *text;
	if (!PyArg_ParseTuple(args, "Oss", &keys, &attribute, &text))
		return NULL;
	struct piece p = { 0 };
	struct pytreefs_draft *d = parse_keys(keys, &p) < 0 ? NULL : draft_use(w);
	if (d) {
		int r;
		Py_BEGIN_ALLOW_THREADS r =
			pytreefs_draft_attribute(d, p.key, p.n_keys, attribute, text);
		Py_END_ALLOW_THREADS w->is_busy = 0;
		if (r < 0)
			py_fail(NULL);
	}
	piece_release(&p);
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *draft_commit(PyObject *self, PyObject *args)
{
	struct py_draft *w = (struct py_draft *)self;
	PyObject *fn;
	if (!PyArg_ParseTuple(args, "O", &fn))
		return NULL;
	struct pytreefs_draft *d = draft_use(w);
	if (!d)
		return NULL;
	struct py_progress p;
	py_progress_begin(&p, fn);
	int r = pytreefs_draft_commit(d, &p.progress);
	py_progress_end(&p);
	w->is_busy = 0;
	/* After a failure, the draft still exists until abort(). */
	if (r >= 0)
		w->d = NULL;
	if (p.raised)
		return NULL;
	if (r < 0)
		return py_fail(w->path);
	Py_RETURN_NONE;
}

static PyObject *draft_abort(PyObject *self, PyObject *unused)
{
	struct py_draft *w = (struct py_draft *)self;
	if (w->is_busy) {
		PyErr_SetString(PyExc_ValueError, "another thread is using the draft");
		return NULL;
	}
	if (w->d)
		abort_now(w);
	Py_RETURN_NONE;
}

static PyObject *draft_remark(PyObject *self, PyObject *unused)
{
	struct py_draft *w = (struct py_draft *)self;
	struct pytreefs_draft *d = draft_use(w);
	if (!d)
		return NULL;
	const char *text = pytreefs_draft_remark(d);
	w->is_busy = 0;
	if (!text)
		Py_RETURN_NONE;
	return py_decode(text, strlen(text));
}

static PyMethodDef methods[] = {
	{ "put", draft_put, METH_VARARGS,
	  PyDoc_STR("put([(keys, kind, dtype, buffer), ...], progress)\n\n"
		    "Keys are str, or int for positions.") },
	{ "attribute", draft_attribute, METH_VARARGS,
	  PyDoc_STR("attribute(keys, attribute, text)") },
	{ "commit", draft_commit, METH_VARARGS,
	  PyDoc_STR("commit(progress)\n\n"
		    "When it fails the draft is as it was: abort() removes it.") },
	{ "remark", draft_remark, METH_NOARGS,
	  PyDoc_STR("remark()\n\nWhat its file system does not promise of a commit, or None.") },
	{ "abort", draft_abort, METH_NOARGS, PyDoc_STR("abort()") },
	{ NULL },
};
static PyType_Slot slots[] = {
	{ Py_tp_doc,
	  (void *)PyDoc_STR("Draft(path, options, flags)\n\nA checkpoint that is being written.") },
	{ Py_tp_init, draft_init },
	{ Py_tp_new, PyType_GenericNew },
	{ Py_tp_dealloc, draft_dealloc },
	{ Py_tp_methods, methods },
	{ 0 },
};
PyType_Spec py_draft_spec = {
	.name = "pytreefs._pytreefs.Draft",
	.basicsize = sizeof(struct py_draft),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = slots,
};
