// Package storable makes texts of others fit for the database, so that nothing that
// somebody says can keep it from being recorded. It is pure.
package storable

import "strings"

// Text replaces what Postgres cannot store: what is not UTF-8, and the character 0.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
