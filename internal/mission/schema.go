package mission

import _ "embed"

//go:embed mission.schema.json
var schema []byte

// Schema returns the JSON schema (draft 2020-12) of a mission document, for
// editors. It is looser than [Parse] where a schema cannot say a rule.
func Schema() []byte { return append([]byte(nil), schema...) }
