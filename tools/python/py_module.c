// SPDX-License-Identifier: Apache-2.0
/*
 * py_module.c - the extension module pytreefs._pytreefs: its errors, its types, and functions for
 * all calls.
 */
#include "tools/python/py_module.h"

#include <errno.h>
#include <string.h>

PyObject *py_error;

/* Errors that are also exceptions of Python, by errno. */
static struct {
	const char *name, *doc;
	PyObject **base;
	int code;
	PyObject *type;
} kinds[] = {
	{ "pytreefs.NotFoundError", "There is no such checkpoint, directory or file.",
	  &PyExc_FileNotFoundError, ENOENT },
	{ "pytreefs.ExistsError", "What is to be written is there already.", &PyExc_FileExistsError,
	  EEXIST },
	{ "pytreefs.AccessError", "The file system refuses access.", &PyExc_PermissionError,
	  EACCES },
	{ .code = EPERM }, /* for the class before */
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))
PyTypeObject *py_file_type;

static PyObject *error_of(int code, PyObject *text, PyObject *name)
{
	PyObject *type = py_error;
	for (size_t i = 0; i < N_KINDS; i++) {
		if (kinds[i].code == code)
			type = kinds[i].type;
	}
	return PyObject_CallFunction(type, "iOO", code, text, name);
}

PyObject *py_fail(PyObject *filename)
{
	const char *about = pytreefs_error_name();
	PyObject *name = filename;
	if (!name && !*about)
		name = Py_None;
	if (name)
		Py_INCREF(name);
	else
		name = py_decode(about, strlen(about));
	PyObject *text = py_decode(pytreefs_error(), strlen(pytreefs_error()));
	if (name && text) {
		PyObject *e = error_of(pytreefs_error_errno(), text, name);
		if (e) {
			PyErr_SetObject((PyObject *)Py_TYPE(e), e);
			Py_DECREF(e);
		}
	}
	Py_XDECREF(name);
	Py_XDECREF(text);
	return NULL;
}

PyObject *py_fail_name(int r, PyObject *name)
{
	if (r == -ENOENT) {
		PyErr_SetObject(PyExc_KeyError, name);
		return NULL;
	}
	return py_fail(NULL);
}

PyObject *py_encode(PyObject *text)
{
	if (!PyUnicode_Check(text)) {
		PyErr_SetString(PyExc_TypeError, "a name must be a str");
		return NULL;
	}
	return PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
}

PyObject *py_decode(const char *p, size_t n)
{
	return PyUnicode_DecodeUTF8(p, (Py_ssize_t)n, "surrogateescape");
}

/* ---- progress ---- */

/* Called in the calling thread: handles Ctrl-C. */
static int py_module_notify(void *arg, uint64_t done, uint64_t total)
{
	struct py_progress *p = arg;
	/* The exception is raised at the end of the call; no Python code may run before. */
	if (p->raised)
		return 1;
	PyEval_RestoreThread(p->thread);
	p->raised = PyErr_CheckSignals() < 0;
	/* Without any bytes there is no part of them that could be done. */
	if (!p->raised && p->fn && total) {
		PyObject *r = PyObject_CallFunction(p->fn, "KK", (unsigned long long)done,
						    (unsigned long long)total);
		p->raised = !r;
		Py_XDECREF(r);
	}
	p->thread = PyEval_SaveThread();
	return p->raised;
}

void py_progress_begin(struct py_progress *p, PyObject *fn)
{
	*p = (struct py_progress){ .progress = { .fn = py_module_notify, .arg = p } };
	p->fn = fn == Py_None ? NULL : fn;
	p->thread = PyEval_SaveThread();
}

void py_progress_end(struct py_progress *p)
{
	PyEval_RestoreThread(p->thread);
}

/* ---- the module ---- */

static PyObject *version(PyObject *self, PyObject *unused)
{
	return PyUnicode_FromString(pytreefs_version());
}

static PyObject *error(PyObject *self, PyObject *args)
{
	PyObject *text, *name;
	int code;
	return PyArg_ParseTuple(args, "iUO", &code, &text, &name) ? error_of(code, text, name) :
								    NULL;
}

static PyMethodDef methods[] = {
	{ "error", error, METH_VARARGS,
	  PyDoc_STR("error(errno, text, filename) -> Error\n\n"
		    "Of the class that fits the number.") },
	{ "version", version, METH_NOARGS,
	  PyDoc_STR("version() -> str\n\nThe version of the library.") },
	{ "write_database", py_write_database, METH_VARARGS,
	  PyDoc_STR("write_database(path, options, [(name, dtype, dtype in memory, shape, chunk, "
		    "[(start, buffer), ...], flags), ...], progress)\n\n"
		    "As pytreefs_database_write().") },
	{ NULL },
};

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **ret)
{
	PyObject *type = PyType_FromSpec(spec);
	if (!type)
		return -1;
	if (ret) {
		Py_INCREF(type);
		*ret = (PyTypeObject *)type;
	}
	int r = PyModule_AddObjectRef(module, name, type);
	Py_DECREF(type);
	return r;
}

static const struct {
	const char *name;
	long value;
} constants[] = {
	{ "UNKNOWN", PYTREEFS_UNKNOWN },
	{ "ARRAY", PYTREEFS_ARRAY },
	{ "SCALAR", PYTREEFS_SCALAR },
	{ "STRING", PYTREEFS_STRING },
	{ "NONE", PYTREEFS_NONE },
	{ "PLACEHOLDER", PYTREEFS_PLACEHOLDER },
	{ "PLUGIN", PYTREEFS_PLUGIN },
	{ "DICT", PYTREEFS_DICT },
	{ "LIST", PYTREEFS_LIST },
	{ "TUPLE", PYTREEFS_TUPLE },
	{ "NAMEDTUPLE", PYTREEFS_NAMEDTUPLE },
	{ "CUSTOM", PYTREEFS_CUSTOM },
	{ "CONTAINER", PYTREEFS_CONTAINER },
	{ "ROOT", PYTREEFS_ROOT },
	{ "STEP", PYTREEFS_STEP },
	{ "OPAQUE", PYTREEFS_OPAQUE },
	{ "FILE", PYTREEFS_FILE },
	{ "TREE_VALUES", PYTREEFS_TREE_VALUES },
	{ "TREE_STORED", PYTREEFS_TREE_STORED },
	{ "DRAFT_ITEM", PYTREEFS_DRAFT_ITEM },
	{ "DRAFT_REPLACE", PYTREEFS_DRAFT_REPLACE },
	{ "ARRAY_SHARED", PYTREEFS_ARRAY_SHARED },
	{ "ARRAY_NO_METADATA", PYTREEFS_ARRAY_NO_METADATA },
	{ "DEPTH", PYTREEFS_DEPTH },
};

static int add_errors(PyObject *module)
{
	if (!py_error) {
		py_error = PyErr_NewExceptionWithDoc(
			"pytreefs.Error",
			"What failed, and why: an OSError whose filename is the file or leaf it is "
			"about.",
			PyExc_OSError, NULL);
	}
	if (!py_error || PyModule_AddObjectRef(module, "Error", py_error) < 0)
		return -1;
	for (size_t i = 0; i < N_KINDS; i++) {
		if (!kinds[i].name) {
			kinds[i].type = kinds[i - 1].type;
			continue;
		}
		if (!kinds[i].type) {
			PyObject *bases = PyTuple_Pack(2, py_error, *kinds[i].base);
			if (!bases)
				return -1;
			kinds[i].type =
				PyErr_NewExceptionWithDoc(kinds[i].name, kinds[i].doc, bases, NULL);
			Py_DECREF(bases);
		}
		if (!kinds[i].type || PyModule_AddObjectRef(module, strchr(kinds[i].name, '.') + 1,
							    kinds[i].type) < 0)
			return -1;
	}
	return 0;
}

static int py_module_start(PyObject *module)
{
	if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
		PyErr_SetString(
			PyExc_ImportError,
			"pytreefs works in the main interpreter only: its threads and their "
			"signals belong to the process; import it there, or use a process of its "
			"own");
		return -1;
	}
	if (add_errors(module) < 0)
		return -1;
	if (add_type(module, &py_checkpoint_spec, "Checkpoint", NULL) < 0 ||
	    add_type(module, &py_file_spec, "File", &py_file_type) < 0 ||
	    add_type(module, &py_draft_spec, "Draft", NULL) < 0 ||
	    add_type(module, &py_map_spec, "Map", &py_map_type) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
		if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
			return -1;
	}
	return 0;
}

static PyModuleDef_Slot slots[] = {
	{ Py_mod_exec, py_module_start },
	{ 0 },
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "pytreefs._pytreefs",
	.m_doc = PyDoc_STR("The library pytreefs.h; the package pytreefs is what to use."),
	.m_methods = methods,
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit__pytreefs(void);
PyMODINIT_FUNC PyInit__pytreefs(void)
{
	return PyModuleDef_Init(&definition);
}
