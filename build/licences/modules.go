package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// A module is one that something of Tidewait is built from.
type module struct {
	Path, Version, Dir string
	Main, Indirect     bool

	shipped  bool // in a program that is installed; else tests and benchmarks alone
	licences []string
	files    []string // where they are, below Dir
}

// programs are what is installed.
var programs = []string{"./starter", "./worker", "./internal/vm/guestagent"}

// modulesOf lists the modules of the packages of the module in dir, but not itself,
// in the order of their paths.
func modulesOf(dir string) ([]module, error) {
	all, err := list(dir, "-test", "./...")
	if err != nil {
		return nil, err
	}
	installed, err := list(dir, programs...)
	if err != nil {
		return nil, err
	}
	var modules []module
	for path, m := range all {
		_, m.shipped = installed[path]
		if m.licences, m.files, err = licencesIn(m.Dir); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// list returns the modules of packages and of all they import.
func list(dir string, packages ...string) (map[string]module, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Module"}, packages...)...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	modules := map[string]module{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ Module *module }
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return modules, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what go list printed: %w", err)
		}
		if p.Module != nil && !p.Module.Main {
			modules[p.Module.Path] = *p.Module
		}
	}
}
