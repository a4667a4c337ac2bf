package config

import (
	"reflect"
	"strings"
)

// envPrefix starts the name of every environment variable that is a setting.
const envPrefix = "TIDEWAIT_"

// A key is one leaf of Settings.
type key struct {
	name  string // such as fleet.max_wait
	typ   reflect.Type
	index []int // of the field in Settings, for reflect.Value.FieldByIndex
}

// keys holds every key in the order of Settings; keyByName finds one by its name.
var (
	keys      = keysOf(reflect.TypeFor[Settings](), "", nil)
	keyByName = indexKeys(keys, func(k key) string { return k.name })
	keyByEnv  = indexKeys(keys, key.env)
)

// env is the environment variable of a key, such as TIDEWAIT_FLEET_MAX_WAIT.
func (k key) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// of returns the key's value in s.
func (k key) of(s *Settings) any {
	return reflect.ValueOf(s).Elem().FieldByIndex(k.index).Interface()
}

func keysOf(t reflect.Type, prefix string, index []int) []key {
	var found []key
	for i := range t.NumField() {
		field := t.Field(i)
		name := prefix + field.Tag.Get("mapstructure")
		at := append(append([]int{}, index...), i)
		if field.Type.Kind() == reflect.Struct {
			found = append(found, keysOf(field.Type, name+".", at)...)
			continue
		}
		found = append(found, key{name: name, typ: field.Type, index: at})
	}
	return found
}

func indexKeys(all []key, by func(key) string) map[string]key {
	index := make(map[string]key, len(all))
	for _, k := range all {
		index[by(k)] = k
	}
	return index
}

// childNames lists what a section holds, in order; section "" is the top.
func childNames(section string) []string {
	prefix := ""
	if section != "" {
		prefix = section + "."
	}
	var names []string
	for _, k := range keys {
		rest, inside := strings.CutPrefix(k.name, prefix)
		if !inside {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}

// KeyNames lists every key, such as fleet.max_wait, in the order of Settings.
func KeyNames() []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return names
}
