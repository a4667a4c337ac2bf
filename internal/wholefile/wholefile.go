// Package wholefile replaces files as a whole.
package wholefile

import "os"

// Draft ends the name of a file that is being written. One that is left is of a
// writer that died.
const Draft = ".new"

// Replace writes a file for this user alone. Whoever reads it finds what was there
// before or all of data, also when the writer is killed. Nothing is forced to the
// disk. One writer at a time may replace a file.
func Replace(name string, data []byte) error {
	if err := os.WriteFile(name+Draft, data, 0o600); err != nil {
		return err
	}
	return os.Rename(name+Draft, name)
}
