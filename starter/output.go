package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"go.yaml.in/yaml/v3"

	"tidewait/internal/render"
)

var formats = []string{"table", "json", "yaml"}

// print writes value in the format asked for; table makes its text for people,
// as seen at now.
func (c *cli) print(value any, now time.Time, table func(render.Options) string) error {
	var text []byte
	var err error
	switch c.format {
	case "json":
		text, err = indentedJSON(value)
	case "yaml":
		text, err = asYAML(value)
	default:
		text = []byte(table(c.view(now)))
	}
	if err != nil {
		return fmt.Errorf("cannot write %T as %s: %w", value, c.format, err)
	}
	_, err = c.out.Write(text)
	return err
}

// stream writes value as one of several: JSON on one line, YAML as a document.
func (c *cli) stream(value any) error {
	if c.format == "json" {
		encoder := json.NewEncoder(c.out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	}
	text, err := asYAML(value)
	if err != nil {
		return err
	}
	_, err = io.WriteString(c.out, "---\n"+string(text))
	return err
}

func (c *cli) structured() bool { return c.format != "table" }

func indentedJSON(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return out.Bytes(), err
}

// asYAML writes the JSON form of value as YAML: the same keys in the same order.
func asYAML(value any) ([]byte, error) {
	text, err := indentedJSON(value)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	unquote(&document)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// unquote drops JSON's style, so that YAML's own is chosen.
func unquote(node *yaml.Node) {
	empty := len(node.Content) == 0 && node.Kind != yaml.ScalarNode
	if !empty {
		node.Style = 0
	}
	for _, child := range node.Content {
		unquote(child)
	}
}
