// SPDX-License-Identifier: Apache-2.0
/* py_read.c - trees as lists of tuples, and batches of reads. */
#include "tools/python/py_module.h"

#include <string.h>

/* ---- trees ---- */

static PyObject *text_or_none(const char *text)
{
	if (text)
		return PyUnicode_FromString(text);
	Py_RETURN_NONE;
}

static PyObject *sizes(const uint64_t *size, uint32_t n)
{
	if (!size)
		Py_RETURN_NONE;
	PyObject *tuple = PyTuple_New((Py_ssize_t)n);
	for (uint32_t i = 0; tuple && i < n; i++) {
		PyObject *number = PyLong_FromUnsignedLongLong(size[i]);
		if (!number || PyTuple_SetItem(tuple, (Py_ssize_t)i, number) < 0) {
			Py_DECREF(tuple);
			return NULL;
		}
	}
	return tuple;
}

/* The order is that of class Node in pytreefs/_node.py. */
static PyObject *node_tuple(const struct pytreefs_node *n, PyObject *version)
{
	int is_array = n->kind == PYTREEFS_ARRAY || n->kind == PYTREEFS_SCALAR;
	PyObject *parent = n->parent == SIZE_MAX ? PyLong_FromLong(-1) :
						   PyLong_FromSize_t(n->parent);
	PyObject *text = NULL;
	if (n->text) {
		text = PyBytes_FromStringAndSize(n->text, (Py_ssize_t)n->text_size);
	} else {
		Py_INCREF(Py_None);
		text = Py_None;
	}
	Py_INCREF(version);
	PyObject *part[] = {
		py_decode(n->path, strlen(n->path)),
		py_decode(n->key ? n->key : "", n->key ? n->key_size : 0),
		PyBool_FromLong(n->key_kind == PYTREEFS_KEY_INDEX),
		PyLong_FromLong(n->kind),
		parent,
		text_or_none(n->dtype),
		text_or_none(n->typestr),
		sizes(is_array ? n->shape : NULL, is_array ? n->ndim : 0),
		sizes(is_array ? n->chunk : NULL, is_array ? n->ndim : 0),
		PyLong_FromUnsignedLongLong(n->bytes),
		PyLong_FromUnsignedLongLong(n->stored),
		text,
		PyLong_FromLong(n->error),
		text_or_none(n->recorded),
		version,
	};
	enum { N = sizeof(part) / sizeof(part[0]) };
	PyObject *tuple = PyTuple_New(N);
	for (int i = 0; i < N; i++) {
		if (!part[i] || !tuple) {
			Py_XDECREF(part[i]);
			Py_XDECREF(tuple);
			tuple = NULL;
		} else if (PyTuple_SetItem(tuple, i, part[i]) < 0) {
			Py_DECREF(tuple);
			tuple = NULL;
		}
	}
	return tuple;
}

/* The nodes with these n indices; NULL: all. */
static PyObject *nodes(const struct pytreefs_tree *tree, const size_t *index, size_t n)
{
	n = index ? n : pytreefs_tree_count(tree);
	PyObject *list = PyList_New((Py_ssize_t)n), *version = NULL;
	uint64_t last = 0;
	for (size_t i = 0; list && i < n; i++) {
		const struct pytreefs_node *found = pytreefs_tree_node(tree, index ? index[i] : i);
		/* All nodes of an item share one object. */
		if (found && (!version || found->version != last)) {
			Py_XDECREF(version);
			last = found->version;
			version = PyLong_FromUnsignedLongLong(last);
		}
		PyObject *node = found && version ? node_tuple(found, version) : NULL;
		if (!found)
			PyErr_Format(PyExc_IndexError, "the tree has no node %zu", index[i]);
		if (!node || PyList_SetItem(list, (Py_ssize_t)i, node) < 0) {
			Py_DECREF(list);
			list = NULL;
		}
	}
	Py_XDECREF(version);
	return list;
}

/* A request for nodes of a tree. */
struct question {
	enum { ONE_NODE, ALL_LEAVES, NAMES, LEAVES } what;
	unsigned flags;
	size_t *leaf; /* for LEAVES */
	size_t n;
};

static int py_read_ask(struct pytreefs *ck, const char *name, const struct question *q,
		       struct pytreefs_tree **ret)
{
	switch (q->what) {
	case ONE_NODE:
		return pytreefs_describe(ck, name, ret);
	case ALL_LEAVES:
		return pytreefs_tree(ck, name, q->flags, ret);
	default:
		return pytreefs_tree_leaves(ck, name, q->flags, q->leaf, q->n, ret);
	}
}

static PyObject *tree_of(PyObject *self, PyObject *name, const struct question *q)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	struct py_name n;
	if (py_use_name(c, name, &n) < 0)
		return NULL;
	struct pytreefs_tree *tree = NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = py_read_ask(n.ck, n.text, q, &tree);
	Py_END_ALLOW_THREADS Py_DECREF(n.bytes);
	PyObject *ret = r < 0 ? py_fail_name(r, name) : nodes(tree, q->leaf, q->n);
	if (r >= 0)
		pytreefs_tree_free(tree);
	py_done(c);
	return ret;
}

PyObject *py_tree(PyObject *self, PyObject *args)
{
	struct question q = { 0 };
	PyObject *name;
	int is_described;
	if (!PyArg_ParseTuple(args, "UIp", &name, &q.flags, &is_described))
		return NULL;
	q.what = is_described ? ALL_LEAVES : NAMES;
	return tree_of(self, name, &q);
}

PyObject *py_leaves(PyObject *self, PyObject *args)
{
	struct question q = { .what = LEAVES };
	PyObject *name, *list;
	if (!PyArg_ParseTuple(args, "UIO!", &name, &q.flags, &PyList_Type, &list))
		return NULL;
	Py_ssize_t n = PyList_Size(list);
	q.leaf = PyMem_Calloc((size_t)n + 1, sizeof(*q.leaf));
	if (!q.leaf)
		return PyErr_NoMemory();
	for (; q.n < (size_t)n && !PyErr_Occurred(); q.n++)
		q.leaf[q.n] = PyLong_AsSize_t(PyList_GetItem(list, (Py_ssize_t)q.n));
	PyObject *ret = PyErr_Occurred() ? NULL : tree_of(self, name, &q);
	PyMem_Free(q.leaf);
	return ret;
}

PyObject *py_describe(PyObject *self, PyObject *args)
{
	struct question q = { .what = ONE_NODE };
	PyObject *name;
	return PyArg_ParseTuple(args, "U", &name) ? tree_of(self, name, &q) : NULL;
}

/* ---- read many ---- */

struct read {
	PyObject *name; /* bytes */
	Py_buffer to;
	int has_buffer;
	struct pytreefs_slice *box;
	int64_t *strides;
};

struct batch {
	size_t n;
	struct pytreefs_request *request;
	struct read *read;
};

/* Parse a sequence of (start, step, count, drop). */
static int py_read_parse_box(PyObject *box, struct read *r, struct pytreefs_request *request)
{
	Py_ssize_t n = PyTuple_Size(box);
	if (n < 0)
		return -1;
	r->box = PyMem_Calloc((size_t)n + 1, sizeof(*r->box));
	if (!r->box) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		unsigned long long start, step, count;
		int drop;
		if (!PyArg_ParseTuple(PyTuple_GetItem(box, i), "KKKp", &start, &step, &count,
				      &drop))
			return -1;
		r->box[i] = (struct pytreefs_slice){ start, step, count, drop };
	}
	request->box = r->box;
	request->n_box = (size_t)n;
	return 0;
}

static int parse_request(PyObject *tuple, struct read *r, struct pytreefs_request *request)
{
	PyObject *name, *box, *buffer;
	unsigned long long version = 0;
	if (!PyArg_ParseTuple(tuple, "UOzO|K", &name, &box, &request->dtype, &buffer, &version))
		return -1;
	request->version = version;
	r->name = py_encode(name);
	if (!r->name)
		return -1;
	request->name = PyBytes_AsString(r->name);
	if (box != Py_None && py_read_parse_box(box, r, request) < 0)
		return -1;
	if (PyObject_GetBuffer(buffer, &r->to, PyBUF_STRIDED) < 0)
		return -1;
	r->has_buffer = 1;
	request->to = r->to.buf;
	request->size = (size_t)r->to.len;
	if (PyBuffer_IsContiguous(&r->to, 'C'))
		return 0;
	r->strides = PyMem_Calloc((size_t)r->to.ndim + 1, sizeof(*r->strides));
	if (!r->strides) {
		PyErr_NoMemory();
		return -1;
	}
	for (int i = 0; i < r->to.ndim; i++)
		r->strides[i] = r->to.strides[i];
	request->strides = r->strides;
	return 0;
}

static int batch_init(struct batch *b, PyObject *list)
{
	Py_ssize_t n = PyList_Size(list);
	if (n < 0)
		return -1;
	b->n = (size_t)n;
	b->request = PyMem_Calloc(b->n + 1, sizeof(*b->request));
	b->read = PyMem_Calloc(b->n + 1, sizeof(*b->read));
	if (!b->request || !b->read) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		if (parse_request(PyList_GetItem(list, i), &b->read[i], &b->request[i]) < 0)
			return -1;
	}
	return 0;
}

/* Returns a list of failed requests with their reasons. */
static PyObject *failures(const struct batch *b)
{
	PyObject *list = PyList_New(0);
	for (size_t i = 0; list && i < b->n; i++) {
		const struct pytreefs_request *q = &b->request[i];
		if (q->result >= 0)
			continue;
		const char *why = q->error ? q->error : strerror(-q->result);
		PyObject *text = py_decode(why, strlen(why));
		PyObject *tuple = text ? Py_BuildValue("niN", (Py_ssize_t)i, q->result, text) :
					 NULL;
		if (!tuple || PyList_Append(list, tuple) < 0) {
			Py_DECREF(list);
			list = NULL;
		}
		Py_XDECREF(tuple);
	}
	return list;
}

PyObject *py_read_many(PyObject *self, PyObject *args)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	PyObject *list, *fn;
	if (!PyArg_ParseTuple(args, "OO", &list, &fn))
		return NULL;
	struct batch b = { 0 };
	struct pytreefs *ck = batch_init(&b, list) < 0 ? NULL : py_use(c);
	PyObject *ret = NULL;
	if (ck) {
		struct py_progress p;
		py_progress_begin(&p, fn);
		int r = pytreefs_read_many(ck, b.request, b.n, &p.progress);
		py_progress_end(&p);
		py_done(c);
		if (!p.raised)
			ret = failures(&b);
		if (ret && r < 0 && PyList_Size(ret) == 0) {
			Py_DECREF(ret);
			ret = py_fail(NULL);
		}
	}
	for (size_t i = 0; b.read && i < b.n; i++) {
		struct read *r = &b.read[i];
		Py_XDECREF(r->name);
		if (r->has_buffer)
			PyBuffer_Release(&r->to);
		PyMem_Free(r->box);
		PyMem_Free(r->strides);
	}
	if (b.request)
		pytreefs_requests_release(b.request, b.n);
	PyMem_Free(b.request);
	PyMem_Free(b.read);
	return ret;
}
