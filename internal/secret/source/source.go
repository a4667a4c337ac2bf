// Package source finds secrets on a gateway: in files of one directory, in
// environment variables that may be given away, and in the output of commands
// that the gateway's settings name. A mission names a secret and chooses nothing
// else: no path, no variable that is not allowed, no argument.
package source

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"tidewait/internal/mission"
	"tidewait/internal/secret/seal"
)

// Limits on values, in bytes. An environment is no place for more.
const (
	MaxValue = 64 << 10
	MaxAll   = 128 << 10 // of the secrets of one command

	maxRead = MaxValue + 2 // a line break after it
)

// Sources are the secrets of a gateway. It is safe for concurrent use.
type Sources struct {
	Dir      string              // absolute; a file for each secret; empty: none
	Env      []string            // variables that may be given away
	Commands map[string][]string // programs with their arguments, by name
	Time     time.Duration       // for one command
}

// Ref is a variable and where its value is, as mission documents write it.
type Ref struct {
	Name string
	From string
}

// Unavailable says why a secret cannot be had. It never holds the value.
type Unavailable struct {
	Ref Ref
	Why string
}

func (u *Unavailable) Error() string {
	return fmt.Sprintf("secret %s is not available: %s %s", u.Ref.Name, u.Ref.From, u.Why)
}

// commandsAtOnce is how many commands one request runs side by side.
const commandsAtOnce = 4

// Resolve returns the values of secrets, in their order. The error is an
// [Unavailable], or ctx was cancelled.
func (s Sources) Resolve(ctx context.Context, refs []Ref) ([]seal.Secret, error) {
	if len(refs) > mission.MaxSecrets {
		return nil, fmt.Errorf("%d secrets were asked for; a command has at most %d", len(refs), mission.MaxSecrets)
	}
	out := make([]seal.Secret, len(refs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(commandsAtOnce)
	for i, ref := range refs {
		g.Go(func() error {
			value, err := s.value(ctx, ref)
			out[i] = seal.Secret{Name: ref.Name, Value: value}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := 0
	for i, secret := range out {
		if all += len(secret.Value); all > MaxAll {
			return nil, &Unavailable{refs[i], "makes the secrets of this run larger than 128 KiB together"}
		}
	}
	return out, nil
}

func (s Sources) value(ctx context.Context, ref Ref) (string, error) {
	source, ok := mission.ParseSource(ref.From)
	if !ok {
		return "", &Unavailable{Ref{ref.Name, "what the document says"}, "names no file, variable or command"}
	}
	var value []byte
	var why string
	var err error
	switch source.Kind {
	case "file":
		value, why = s.file(source.Name)
	case "env":
		value, why = s.variable(source.Name)
	case "command":
		value, why, err = s.command(ctx, source.Name)
	}
	if err != nil {
		return "", err
	}
	if why == "" {
		value, why = text(value)
	}
	if why != "" {
		return "", &Unavailable{ref, why}
	}
	return string(value), nil
}

func (s Sources) variable(name string) (value []byte, why string) {
	if !slices.Contains(s.Env, name) {
		return nil, "may not be given away: the gateway's gateway.secret_env does not name it"
	}
	text, ok := os.LookupEnv(name)
	if !ok {
		return nil, "is not set in the environment of the gateway"
	}
	return []byte(text), ""
}

// text returns a value without the newline that editors and commands put at its
// end, when it can be a variable.
func text(value []byte) (clean []byte, why string) {
	trimmed := strings.TrimSuffix(strings.TrimSuffix(string(value), "\n"), "\r")
	switch {
	case len(trimmed) > MaxValue:
		return nil, "is larger than 64 KiB"
	case trimmed == "":
		return nil, "is empty"
	case !utf8.ValidString(trimmed) || strings.Contains(trimmed, "\x00"):
		return nil, "is not text, which a variable has to be; keep it in base64"
	}
	return []byte(trimmed), ""
}
