// How far the versions of all dicts are, up to Python 3.11; watched dicts and their versions, since 3.12.
#include "dict_versions.h"

#if PY_VERSION_HEX < 0x030C0000

namespace torchglass {

size_t many_dicts = 64;

// Every write to `probe` is a change too, and not counted. Where it fails, all that can be said is that nothing is as it
// was: the versions of dicts never come that far.
uint64_t dict_changes() {
  static PyObject* const probe = PyDict_New();
  static uint64_t asked = 0, unknown = uint64_t{1} << 63;
  if (probe == nullptr || PyDict_SetItem(probe, Py_None, asked % 2 != 0 ? Py_True : Py_False) < 0) {
    PyErr_Clear();
    return unknown++;
  }
  return *version_of(probe) - ++asked;
}

}  // namespace torchglass

#else

#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torchglass {

size_t many_dicts = 0;
uint64_t dict_changes_count = 0;

namespace {

// Places never move or go: a guard table may hold the address of one whose dict has died. A place is used again for
// another dict, with a number that was never given. Never destroyed, as dicts die until the interpreter has ended.
struct Watched {
  std::deque<uint64_t> places;
  std::vector<uint64_t*> free;
  std::unordered_map<PyObject*, uint64_t*> by_dict;
  uint64_t last = 0;
  int watcher = -1;
};

Watched& watched_dicts() {
  static Watched* const all = new Watched;
  return *all;
}

// Called before the change is made, with the lock held; runs no Python code.
int on_change(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  Watched& all = watched_dicts();
  const auto found = all.by_dict.find(dict);
  if (found == all.by_dict.end()) return 0;
  ++dict_changes_count;
  uint64_t* const place = found->second;
  *place = ++all.last;
  if (event == PyDict_EVENT_DEALLOCATED) {
    all.by_dict.erase(found);  // first: its address is another dict's soon
    all.free.push_back(place);
  }
  return 0;
}

const uint64_t* watch(PyObject* dict) {
  Watched& all = watched_dicts();
  if (PyDict_Watch(all.watcher, dict) < 0) {
    PyErr_Clear();
    return nullptr;
  }
  if (all.free.empty()) {
    all.places.push_back(0);
    all.free.push_back(&all.places.back());
  }
  uint64_t* const place = all.free.back();
  all.free.pop_back();
  *place = ++all.last;
  all.by_dict.emplace(dict, place);
  return place;
}

// Whether the watcher hears of every kind of change to the dict of an object: that of Python 3.13.0 does not when an
// attribute is set (github.com/python/cpython/issues/125608), and what is not heard of must not be relied on.
bool hears_every_dict() {
  const Ref type(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Watched"));
  Ref object(type ? PyObject_CallNoArgs(type.get()) : nullptr);
  if (!object || PyObject_SetAttrString(object.get(), "old", Py_None) < 0) return false;
  Ref dict(PyObject_GenericGetDict(object.get(), nullptr));
  if (!dict || watch(dict.get()) == nullptr) return false;
  uint64_t before = dict_changes_count;
  const auto heard = [&](int status) { return status == 0 && std::exchange(before, dict_changes_count) != before; };
  if (!heard(PyObject_SetAttrString(object.get(), "old", Py_True))) return false;
  if (!heard(PyObject_SetAttrString(object.get(), "new", Py_None))) return false;
  if (!heard(PyObject_DelAttrString(object.get(), "new"))) return false;
  if (!heard(PyDict_SetItemString(dict.get(), "old", Py_False))) return false;
  if (!heard(PyDict_DelItemString(dict.get(), "old"))) return false;
  dict = Ref();
  object = Ref();
  return heard(0);
}

bool begin_watching() {
  Watched& all = watched_dicts();
  all.watcher = PyDict_AddWatcher(quiet_entry<on_change>);
  const bool usable = all.watcher >= 0 && hears_every_dict();
  PyErr_Clear();
  return usable;
}

}  // namespace

bool dicts_have_versions() {
  static const bool usable = begin_watching();
  return usable;
}

const uint64_t* version_of(PyObject* dict) {
  if (!dicts_have_versions()) return nullptr;
  const auto& known = watched_dicts().by_dict;
  const auto found = known.find(dict);
  return found != known.end() ? found->second : watch(dict);
}

}  // namespace torchglass

#endif
