// Versions of dicts: a number that changes with every change of the dict and that no dict has had before.
//
// Up to Python 3.11 it is the dict's own version tag (PEP 509), the next number of one count for all dicts: a dict of
// ours that is written to says how far it is, so whether any dict at all was changed or made. Since 3.12 dicts can be
// watched: a dict whose version is asked for has a number of ours, which the watcher's callback renews, and
// `dict_changes` counts the changes of all of them, so that one comparison says that none has changed.
#pragma once

#include "native.h"

#include <cstdint>

namespace torchglass {

// From how many dicts on `dict_changes` is asked for: as many as could be looked at meanwhile. Tests change it.
extern size_t many_dicts;

#if PY_VERSION_HEX < 0x030C0000
inline bool dicts_have_versions() {
  return true;
}

inline const uint64_t* version_of(PyObject* dict) {
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}

// How many changes there have been of any dict of the process.
uint64_t dict_changes();
#else

// Whether this Python tells of every change: 3.13.0 does not. Then no dict has a version.
bool dicts_have_versions();

// Where the dict's version stands: to be read while the dict lives; afterwards the place stays readable, and holds no
// number that it held before. Null, without an exception, if the dict cannot be watched.
const uint64_t* version_of(PyObject* dict);

extern uint64_t dict_changes_count;

// How many changes of watched dicts there have been; their deaths count as such.
inline uint64_t dict_changes() {
  return dict_changes_count;
}
#endif

// What the version of a dict was.
struct DictVersion {
  const uint64_t* place;  // null: not known
  uint64_t number;

  bool is_current() const { return *place == number; }
};

inline DictVersion version_now(PyObject* dict) {
  const uint64_t* const place = version_of(dict);
  return {place, place != nullptr ? *place : 0};
}

}  // namespace torchglass
