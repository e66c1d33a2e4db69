// SPDX-License-Identifier: Apache-2.0
/*
 * py_checkpoint.c - the type Checkpoint: a handle of the library, and its files.
 */
#include "tools/python/py_module.h"

#include <errno.h>
#include <string.h>

/* ---- use and close ---- */

struct pytreefs *py_use(struct py_checkpoint *c)
{
	if (!c->ck || c->is_closing) {
		PyErr_Format(PyExc_ValueError, "the checkpoint %R is closed",
			     c->path ? c->path : Py_None);
		return NULL;
	}
	c->users++;
	return c->ck;
}

static void close_now(struct py_checkpoint *c)
{
	struct pytreefs *ck = c->ck;
	c->ck = NULL;
	Py_BEGIN_ALLOW_THREADS pytreefs_close(ck);
	Py_END_ALLOW_THREADS
}

void py_done(struct py_checkpoint *c)
{
	if (--c->users == 0 && c->is_closing)
		close_now(c);
}

int py_use_name(struct py_checkpoint *c, PyObject *name, struct py_name *ret)
{
	PyObject *bytes = py_encode(name);
	struct pytreefs *ck = bytes ? py_use(c) : NULL;
	if (!ck) {
		Py_XDECREF(bytes);
		return -1;
	}
	*ret = (struct py_name){ ck, bytes, PyBytes_AsString(bytes) };
	return 0;
}

static PyObject *checkpoint_close(PyObject *self, PyObject *unused)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	c->is_closing = 1;
	if (c->users == 0)
		close_now(c);
	Py_RETURN_NONE;
}

static int checkpoint_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	PyObject *path, *options;
	if (!PyArg_ParseTuple(args, "UU", &path, &options))
		return -1;
	if (c->ck) {
		PyErr_SetString(PyExc_ValueError, "it is open");
		return -1;
	}
	PyObject *path_bytes = py_encode(path), *option_bytes = py_encode(options);
	int r = -EINVAL;
	if (path_bytes && option_bytes) {
		const char *p = PyBytes_AsString(path_bytes), *o = PyBytes_AsString(option_bytes);
		struct pytreefs *ck = NULL;
		Py_BEGIN_ALLOW_THREADS r = pytreefs_open(p, *o ? o : NULL, &ck);
		Py_END_ALLOW_THREADS if (r < 0)
		{
			py_fail(path);
		}
		else
		{
			c->ck = ck;
			Py_INCREF(path);
			c->path = path;
		}
	}
	Py_XDECREF(path_bytes);
	Py_XDECREF(option_bytes);
	return r < 0 ? -1 : 0;
}

static void checkpoint_dealloc(PyObject *self)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	PyTypeObject *type = Py_TYPE(self);
	if (c->ck)
		close_now(c);
	Py_XDECREF(c->path);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	release(self);
	Py_DECREF(type);
}

/* ---- names ---- */

struct listing {
	PyObject *list;
	PyThreadState *thread;
};

static int py_checkpoint_add_entry(void *arg, const struct pytreefs_entry *e)
{
	struct listing *l = arg;
	PyEval_RestoreThread(l->thread);
	PyObject *name = py_decode(e->name, strlen(e->name));
	PyObject *step = NULL, *tuple = NULL;
	if (name && e->is_step && e->step != UINT64_MAX) {
		step = PyLong_FromUnsignedLongLong(e->step);
	} else {
		Py_INCREF(Py_None);
		step = Py_None;
	}
	if (name && step)
		tuple = PyTuple_Pack(3, name, e->is_directory ? Py_True : Py_False, step);
	int r = tuple ? PyList_Append(l->list, tuple) : -1;
	Py_XDECREF(name);
	Py_XDECREF(step);
	Py_XDECREF(tuple);
	l->thread = PyEval_SaveThread();
	return r;
}

static PyObject *entries_of(PyObject *self, PyObject *name)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	PyObject *bytes = name ? py_encode(name) : NULL;
	if (name && !bytes)
		return NULL;
	struct listing l = { .list = PyList_New(0) };
	struct pytreefs *ck = l.list ? py_use(c) : NULL;
	if (!ck) {
		Py_XDECREF(bytes);
		Py_XDECREF(l.list);
		return NULL;
	}
	const char *where = bytes ? PyBytes_AsString(bytes) : NULL;
	l.thread = PyEval_SaveThread();
	int r = where ? pytreefs_list(ck, where, py_checkpoint_add_entry, &l) :
			pytreefs_steps(ck, py_checkpoint_add_entry, &l);
	PyEval_RestoreThread(l.thread);
	py_done(c);
	Py_XDECREF(bytes);
	if (r < 0) {
		Py_DECREF(l.list);
		if (!PyErr_Occurred())
			py_fail_name(r, name ? name : Py_None);
		return NULL;
	}
	return l.list;
}

static PyObject *checkpoint_list(PyObject *self, PyObject *args)
{
	PyObject *name;
	return PyArg_ParseTuple(args, "U", &name) ? entries_of(self, name) : NULL;
}

static PyObject *checkpoint_steps(PyObject *self, PyObject *unused)
{
	return entries_of(self, NULL);
}

static PyObject *checkpoint_kind(PyObject *self, PyObject *unused)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	struct pytreefs *ck = py_use(c);
	if (!ck)
		return NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = pytreefs_kind(ck);
	Py_END_ALLOW_THREADS py_done(c);
	return r < 0 ? py_fail(c->path) : PyLong_FromLong(r);
}

static PyObject *checkpoint_stat(PyObject *self, PyObject *args)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	PyObject *name;
	if (!PyArg_ParseTuple(args, "U", &name))
		return NULL;
	struct py_name n;
	if (py_use_name(c, name, &n) < 0)
		return NULL;
	struct pytreefs_stat st;
	int r;
	Py_BEGIN_ALLOW_THREADS r = pytreefs_stat(n.ck, n.text, &st);
	Py_END_ALLOW_THREADS py_done(c);
	Py_DECREF(n.bytes);
	if (r < 0)
		return py_fail_name(r, name);
	return Py_BuildValue("KKdO", (unsigned long long)st.size, (unsigned long long)st.stored,
			     (double)st.mtime_s + st.mtime_ns * 1e-9,
			     st.is_directory ? Py_True : Py_False);
}

static PyObject *checkpoint_attribute(PyObject *self, PyObject *args)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	PyObject *name;
	const char *attribute;
	if (!PyArg_ParseTuple(args, "Us", &name, &attribute))
		return NULL;
	struct py_name n;
	if (py_use_name(c, name, &n) < 0)
		return NULL;
	char *text = NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = pytreefs_attribute(n.ck, n.text, attribute, &text);
	Py_END_ALLOW_THREADS py_done(c);
	Py_DECREF(n.bytes);
	if (r == -ENODATA)
		Py_RETURN_NONE;
	if (r < 0)
		return py_fail_name(r, name);
	PyObject *ret = py_decode(text, strlen(text));
	pytreefs_free_text(text);
	return ret;
}

/* ---- files ---- */

struct py_file {
	PyObject ob_base;
	struct pytreefs_file *f;
	struct py_checkpoint *c; /* in use */
	Py_ssize_t users;
};

static PyObject *checkpoint_file(PyObject *self, PyObject *args)
{
	struct py_checkpoint *c = (struct py_checkpoint *)self;
	PyObject *name;
	if (!PyArg_ParseTuple(args, "U", &name))
		return NULL;
	struct py_name n;
	if (py_use_name(c, name, &n) < 0)
		return NULL;
	struct pytreefs_file *f = NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = pytreefs_file_open(n.ck, n.text, &f);
	Py_END_ALLOW_THREADS Py_DECREF(n.bytes);
	struct py_file *made = r < 0 ? NULL :
				       (struct py_file *)PyType_GenericAlloc(py_file_type, 0);
	if (!made) {
		if (r >= 0)
			pytreefs_file_close(f);
		py_done(c);
		return r < 0 ? py_fail_name(r, name) : NULL;
	}
	made->f = f;
	made->c = c;
	Py_INCREF(self);
	return (PyObject *)made;
}

static void file_end(struct py_file *f)
{
	if (!f->f)
		return;
	struct pytreefs_file *handle = f->f;
	struct py_checkpoint *c = f->c;
	f->f = NULL;
	f->c = NULL;
	Py_BEGIN_ALLOW_THREADS pytreefs_file_close(handle);
	Py_END_ALLOW_THREADS py_done(c);
	Py_DECREF((PyObject *)c);
}

static PyObject *file_close(PyObject *self, PyObject *unused)
{
	struct py_file *f = (struct py_file *)self;
	if (f->users) {
		PyErr_SetString(PyExc_ValueError, "another thread is reading the file");
		return NULL;
	}
	file_end(f);
	Py_RETURN_NONE;
}

static PyObject *file_size(PyObject *self, PyObject *unused)
{
	struct py_file *f = (struct py_file *)self;
	if (!f->f) {
		PyErr_SetString(PyExc_ValueError, "the file is closed");
		return NULL;
	}
	return PyLong_FromUnsignedLongLong(pytreefs_file_size(f->f));
}

static PyObject *file_readinto(PyObject *self, PyObject *args)
{
	struct py_file *f = (struct py_file *)self;
	Py_buffer to;
	unsigned long long offset;
	if (!PyArg_ParseTuple(args, "w*K", &to, &offset))
		return NULL;
	if (!f->f) {
		PyBuffer_Release(&to);
		PyErr_SetString(PyExc_ValueError, "the file is closed");
		return NULL;
	}
	ssize_t n;
	f->users++;
	Py_BEGIN_ALLOW_THREADS n = pytreefs_file_read(f->f, to.buf, (size_t)to.len, offset);
	Py_END_ALLOW_THREADS f->users--;
	PyBuffer_Release(&to);
	return n < 0 ? py_fail(NULL) : PyLong_FromSsize_t(n);
}

static void file_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	file_end((struct py_file *)self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	release(self);
	Py_DECREF(type);
}

/* ---- types ---- */

static PyMethodDef file_methods[] = {
	{ "size", file_size, METH_NOARGS, PyDoc_STR("size() -> int\n\nBytes.") },
	{ "readinto", file_readinto, METH_VARARGS,
	  PyDoc_STR("readinto(buffer, offset) -> int\n\n"
		    "Fewer bytes than asked for only at the end.") },
	{ "close", file_close, METH_NOARGS, PyDoc_STR("close()") },
	{ NULL },
};
static PyType_Slot file_slots[] = {
	{ Py_tp_doc, (void *)PyDoc_STR("A file as a mount shows it.") },
	{ Py_tp_dealloc, file_dealloc },
	{ Py_tp_methods, file_methods },
	{ 0 },
};
PyType_Spec py_file_spec = {
	.name = "pytreefs._pytreefs.File",
	.basicsize = sizeof(struct py_file),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = file_slots,
};

static PyMethodDef checkpoint_methods[] = {
	{ "kind", checkpoint_kind, METH_NOARGS, PyDoc_STR("kind() -> int\n\nWhat was opened.") },
	{ "list", checkpoint_list, METH_VARARGS,
	  PyDoc_STR("list(name) -> [(name, is_directory, step or None), ...]") },
	{ "steps", checkpoint_steps, METH_NOARGS,
	  PyDoc_STR("steps() -> [(name, is_directory, step or None), ...], by number") },
	{ "stat", checkpoint_stat, METH_VARARGS,
	  PyDoc_STR("stat(name) -> (size, stored, mtime, is_directory)") },
	{ "attribute", checkpoint_attribute, METH_VARARGS,
	  PyDoc_STR("attribute(name, attribute) -> str of JSON, or None") },
	{ "tree", py_tree, METH_VARARGS,
	  PyDoc_STR("tree(name, flags, is_described) -> [node, ...]") },
	{ "leaves", py_leaves, METH_VARARGS,
	  PyDoc_STR("leaves(name, flags, [index, ...]) -> [node, ...]\n\n"
		    "The indices are those in tree(), and increase.") },
	{ "describe", py_describe, METH_VARARGS, PyDoc_STR("describe(name) -> [node]") },
	{ "read_many", py_read_many, METH_VARARGS,
	  PyDoc_STR("read_many([(name, box, dtype, buffer), ...], progress) -> "
		    "[(index, code, text), ...]\n\n"
		    "The requests that failed.") },
	{ "map", py_map, METH_VARARGS,
	  PyDoc_STR("map([(name, version), ...], is_writable) -> [result, ...]\n\n"
		    "(Map, strides); None: to be read; (code, text): it failed.") },
	{ "file", checkpoint_file, METH_VARARGS, PyDoc_STR("file(name) -> File") },
	{ "close", checkpoint_close, METH_NOARGS,
	  PyDoc_STR("close()\n\nWhen the calls under way have ended.") },
	{ NULL },
};
static PyType_Slot checkpoint_slots[] = {
	{ Py_tp_doc, (void *)PyDoc_STR("Checkpoint(path, options)\n\nA handle of the library.") },
	{ Py_tp_init, checkpoint_init },
	{ Py_tp_new, PyType_GenericNew },
	{ Py_tp_dealloc, checkpoint_dealloc },
	{ Py_tp_methods, checkpoint_methods },
	{ 0 },
};
PyType_Spec py_checkpoint_spec = {
	.name = "pytreefs._pytreefs.Checkpoint",
	.basicsize = sizeof(struct py_checkpoint),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = checkpoint_slots,
};
