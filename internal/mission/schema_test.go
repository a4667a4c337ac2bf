package mission

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type schemaObject struct {
	Schema               string                     `json:"$schema"`
	Type                 string                     `json:"type"`
	AdditionalProperties *bool                      `json:"additionalProperties"`
	Required             []string                   `json:"required"`
	Properties           map[string]json.RawMessage `json:"properties"`
	Defs                 map[string]json.RawMessage `json:"$defs"`
}

// TestSchemaAndParserKnowTheSameKeys holds for every mapping with a closed list
// of keys: no key is in one and not in the other, and both require the same.
func TestSchemaAndParserKnowTheSameKeys(t *testing.T) {
	var document schemaObject
	require.NoError(t, json.Unmarshal(Schema(), &document))
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", document.Schema)

	objects := map[string]schemaObject{"document": document}
	for name, raw := range document.Defs {
		var object struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		require.NoError(t, json.Unmarshal(raw, &object))
		if object.Properties == nil {
			continue
		}
		var closed schemaObject
		require.NoError(t, json.Unmarshal(raw, &closed))
		objects[name] = closed
	}

	shapes := map[string]shape{
		"document": documentShape, "metadata": metadataShape, "spec": specShape, "workspace": workspaceShape,
		"phase": phaseShape, "agent": agentShape, "resources": resourcesShape, "requires": requiresShape, "hold": holdShape, "secret": secretShape,
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(shapes)), slices.Collect(maps.Keys(objects)))
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			object := objects[name]
			require.Equal(t, "object", object.Type)
			require.NotNil(t, object.AdditionalProperties)
			require.False(t, *object.AdditionalProperties)
			require.ElementsMatch(t, s.names(), slices.Collect(maps.Keys(object.Properties)))
			var required []string
			for _, f := range s {
				if f.required != "" && f.unless == "" {
					required = append(required, f.name)
				}
			}
			require.ElementsMatch(t, required, object.Required)
		})
	}
}

func TestSchemaReferencesExist(t *testing.T) {
	var document map[string]any
	require.NoError(t, json.Unmarshal(Schema(), &document))
	defs := document["$defs"].(map[string]any)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				require.Contains(t, defs, ref[len("#/$defs/"):])
			}
			for _, child := range v {
				walk(child)
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	walk(document)
}

func TestSuggest(t *testing.T) {
	names := phaseShape.names()
	for mistyped, want := range map[string]string{
		"nmae": "name", "Name": "name", "comand": "", "collects": "collect", "run_": "run", "cmd": "", "x": "", "environment": "",
		"resource": "resources", "attempt": "attempts", "require": "requires", "": "",
	} {
		require.Equal(t, want, suggest(mistyped, names), mistyped)
	}
}
