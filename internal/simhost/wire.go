package simhost

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// answer is the body of every reply.
type answer struct {
	Success  bool   `json:"success"`
	Message  string `json:"message"`
	Response any    `json:"response,omitempty"`
}

func done(message string) answer    { return answer{Success: true, Message: message} }
func refused(message string) answer { return answer{Message: message} }
func found(response any) answer     { return answer{Success: true, Response: response} }

// encode writes v as hosts do: without line breaks, < and > as they are.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // values of this package always encode
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// sorted writes v with the keys of every object in order, as in events.
func sorted(v any) []byte {
	var tree any
	d := json.NewDecoder(bytes.NewReader(encode(v)))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil { // encode wrote it
		return []byte("null")
	}
	return encode(tree)
}

// fields reads a request's body field by field, as strictly as hosts do: keys
// have one case, and null is no text. bad is set by the first fault.
type fields struct {
	values map[string]json.RawMessage
	bad    bool
}

func parse(body []byte) *fields {
	f := &fields{}
	trimmed := bytes.TrimSpace(body)
	if !bytes.HasPrefix(trimmed, []byte("{")) || json.Unmarshal(trimmed, &f.values) != nil {
		f.bad = true
	}
	return f
}

func read[T any](f *fields, raw json.RawMessage, v *T) {
	if bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, v) != nil {
		f.bad = true
	}
}

// must returns a text that may not be absent.
func (f *fields) must(key string) string {
	raw, is := f.values[key]
	if !is {
		f.bad = true
		return ""
	}
	return text(f, raw)
}

// text returns a text, or what stands for an absent one.
func (f *fields) text(key, absent string) string {
	raw, is := f.values[key]
	if !is {
		return absent
	}
	return text(f, raw)
}

func text(f *fields, raw json.RawMessage) (s string) {
	read(f, raw, &s)
	return s
}

// texts returns a list of texts; absent is empty unless it is needed.
func (f *fields) texts(key string, needed bool) []string {
	raw, is := f.values[key]
	list := []*string{}
	if !is {
		f.bad = f.bad || needed
		return []string{}
	}
	read(f, raw, &list)
	values := make([]string, len(list))
	for i, s := range list {
		if s == nil {
			f.bad = true
			continue
		}
		values[i] = *s
	}
	return values
}

// pairs returns a map of texts; null and absent are empty unless it is needed.
func (f *fields) pairs(key string, needed bool) map[string]string {
	raw, is := f.values[key]
	if !needed && (!is || bytes.Equal(raw, []byte("null"))) {
		return map[string]string{}
	}
	m, ok := parsePairs(raw)
	f.bad = f.bad || !ok
	return m
}

// count returns an unsigned number of 32 bits, 0 when absent.
func (f *fields) count(key string) uint32 {
	raw, is := f.values[key]
	if !is {
		return 0
	}
	n, err := strconv.ParseUint(string(raw), 10, 32)
	f.bad = f.bad || err != nil
	return uint32(n)
}

// flag returns a truth, false when absent.
func (f *fields) flag(key string) (b bool) {
	if raw, is := f.values[key]; is {
		read(f, raw, &b)
	}
	return b
}

// parsePairs reads a flat map of texts.
func parsePairs(body []byte) (map[string]string, bool) {
	f := parse(body)
	m := make(map[string]string, len(f.values))
	for key, raw := range f.values {
		m[key] = text(f, raw)
	}
	return m, !f.bad
}

// isKey says whether the store takes a name.
func isKey(name string) bool {
	if name == "" || name[0] == '.' || name[len(name)-1] == '.' {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '/', c == '_', c == '=', c == '.':
		default:
			return false
		}
	}
	return true
}

const illegalKey = "key cannot be empty or start/end with `.`"
