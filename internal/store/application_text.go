package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"tidewait/internal/ledger"
	"tidewait/internal/oam"
)

// ErrText says that a text cannot be stored: it is not UTF-8, has a NUL
// character, or is too long.
var ErrText = errors.New("cannot be stored")

// Bounds of texts that become part of a key, so that they fit an index of
// Postgres: three of the former and one of the latter, in bytes.
const (
	maxKeyBytes = 512
	maxIDBytes  = 1024
)

func checkKey(key ledger.AppKey) error {
	return errors.Join(
		checkShort("the account", key.Account, maxKeyBytes),
		checkShort("the lattice", key.Lattice, maxKeyBytes),
		checkShort("the application's name", key.Name, maxKeyBytes))
}

func checkVersion(v ledger.AppVersion) error {
	errs := []error{checkShort("the version", v.Version, maxKeyBytes)}
	if v.Description != nil {
		errs = append(errs, checkText("the description", *v.Description))
	}
	if !utf8.Valid(v.Manifest) || bytes.IndexByte(v.Manifest, 0) >= 0 {
		errs = append(errs, fmt.Errorf("the manifest is not UTF-8 text: %w", ErrText))
	}
	for _, name := range slices.Sorted(maps.Keys(v.Facts.Components)) {
		errs = append(errs, checkText("the name of a component", name))
	}
	for _, id := range v.Facts.IDs {
		errs = append(errs, checkShort("the id of a component", id, maxIDBytes))
	}
	for _, r := range v.Facts.References {
		errs = append(errs, checkReference(r))
	}
	return errors.Join(errs...)
}

func checkReference(r oam.Reference) error {
	return errors.Join(
		checkText("the name of a shared application", r.Application), checkText("the name of a shared component", r.Component))
}

func checkShort(what, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("%s has %d bytes, at most %d are possible: %w", what, len(text), most, ErrText)
	}
	return checkText(what, text)
}

func checkText(what, text string) error {
	switch {
	case !utf8.ValidString(text):
		return fmt.Errorf("%s %q is not valid UTF-8: %w", what, text, ErrText)
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%s %q has a NUL character: %w", what, text, ErrText)
	}
	return nil
}

// canBeStored reports whether a text may be one that is stored, and not merely
// asked for.
func canBeStored(text string) bool { return checkText("", text) == nil }
