package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// searchPath is where a settings file is looked for when none is named.
var searchPath = []string{"tidewait.yaml", "/etc/tidewait/tidewait.yaml"}

// locate returns the settings file: the one that was named, or the first of the
// search path that exists, or "".
func locate(named string, environment map[string]string) string {
	if named != "" {
		return named
	}
	if named = environment[fileVariable]; named != "" {
		return named
	}
	for _, path := range searchPath {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// readFile adds the settings of a YAML file.
func (l *layers) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read the settings file: %w", err)
	}
	defer file.Close()
	return l.readYAML(path, file)
}

func (l *layers) readYAML(name string, r io.Reader) error {
	var document, second yaml.Node
	decoder := yaml.NewDecoder(r)
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("the settings file %s is not YAML: %w", name, err)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the settings file %s has more than one YAML document: keep one", name)
	}
	file := yamlFile{name: name, layers: l}
	file.section("", document.Content[0])
	return nil
}

// A yamlFile walks one document and hands its settings to the layers.
type yamlFile struct {
	name   string
	layers *layers
}

// section reads a mapping whose children are keys or sections of their own.
func (f yamlFile) section(name string, node *yaml.Node) {
	node = resolve(node)
	if isNull(node) {
		return
	}
	if node.Kind != yaml.MappingNode {
		f.refuse(name, node, "want the keys "+strings.Join(childNames(name), ", "))
		return
	}
	seen := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		child, value := node.Content[i], node.Content[i+1]
		f.child(name, child, value, seen)
	}
}

func (f yamlFile) child(section string, name, value *yaml.Node, seen map[string]bool) {
	full := name.Value
	if section != "" {
		full = section + "." + name.Value
	}
	if seen[full] {
		f.layers.refuse(Fault{Key: full, Origin: f.origin(name), Want: "the key is there twice: keep one"})
		return
	}
	seen[full] = true
	if k, known := keyByName[full]; known {
		f.leaf(k, value)
		return
	}
	if len(childNames(full)) > 0 && !strings.Contains(name.Value, ".") {
		f.section(full, value)
		return
	}
	holder := section
	if holder == "" {
		holder = "the top level"
	}
	f.layers.refuse(Fault{
		Key: full, Origin: f.origin(name),
		Want: "no such key; " + holder + " has " + strings.Join(childNames(section), ", "),
	})
}

// leaf reads one key's value. A null leaves the key unset.
func (f yamlFile) leaf(k key, node *yaml.Node) {
	node = resolve(node)
	if isNull(node) {
		return
	}
	value, text, ok := leafValue(k.typ, node)
	if !ok {
		f.refuse(k.name, node, wanted(k.typ))
		return
	}
	f.layers.set(k, setting{value: value, text: text, origin: f.origin(node)})
}

func leafValue(t reflect.Type, node *yaml.Node) (value any, text string, ok bool) {
	switch t.Kind() {
	case reflect.Slice:
		list, ok := stringList(node)
		return list, written(list), ok
	case reflect.Map:
		pairs, ok := stringMap(node)
		return pairs, written(pairs), ok
	default:
		if node.Kind != yaml.ScalarNode {
			return nil, "", false
		}
		value, ok := parse(t, node.Value)
		return value, node.Value, ok
	}
}

func stringList(node *yaml.Node) (list []string, ok bool) {
	if node.Kind != yaml.SequenceNode {
		return nil, false
	}
	list = []string{}
	for _, element := range node.Content {
		element = resolve(element)
		if element.Kind != yaml.ScalarNode || isNull(element) {
			return nil, false
		}
		list = append(list, element.Value)
	}
	return list, true
}

func stringMap(node *yaml.Node) (pairs map[string]string, ok bool) {
	if node.Kind != yaml.MappingNode {
		return nil, false
	}
	pairs = map[string]string{}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := resolve(node.Content[i]), resolve(node.Content[i+1])
		if name.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode || isNull(value) {
			return nil, false
		}
		if _, twice := pairs[name.Value]; twice {
			return nil, false
		}
		pairs[name.Value] = value.Value
	}
	return pairs, true
}

func (f yamlFile) refuse(name string, node *yaml.Node, want string) {
	if name == "" {
		name = f.name
	}
	value := describe(node)
	if node.Kind == yaml.ScalarNode {
		value = shown(name, node.Value)
	}
	f.layers.refuse(Fault{Key: name, Value: value, Origin: f.origin(node), Want: want})
}

func (f yamlFile) origin(node *yaml.Node) string {
	return fmt.Sprintf("%s:%d", f.name, node.Line)
}

func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	default:
		return "a value"
	}
}

func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.Tag == "!!null"
}
