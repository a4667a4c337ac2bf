package logkey_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	temporallog "go.temporal.io/sdk/log"

	"tidewait/internal/ledger"
	"tidewait/internal/logkey"
)

func TestRecordsOfTemporalSayWhatTheyAreAbout(t *testing.T) {
	for _, c := range []struct {
		name string
		with []any // of the logger
		args []any // of the record
		want map[string]any
	}{
		{
			"a phase, on a node's queue",
			[]any{"WorkflowID", "phase.nightly.unit-test", "TaskQueue", "node.n1"},
			[]any{"run", "r1-1"},
			map[string]any{"mission": "nightly", "phase": "unit-test", "node": "n1", "run": "r1-1"},
		},
		{"a mission, in the record itself", nil, []any{"WorkflowID", "mission.nightly"}, map[string]any{"mission": "nightly"}},
		{
			"an application",
			[]any{"WorkflowID", "app.default.prod.shop.eu"},
			nil,
			map[string]any{"account": "default", "lattice": "prod", "application": "shop.eu"},
		},
		{"a lattice", []any{"WorkflowID", "lattice.acme.prod"}, nil, map[string]any{"account": "acme", "lattice": "prod"}},
		{"a gateway's queue", []any{"TaskQueue", "gateway.gw"}, nil, map[string]any{"gateway": "gw"}},
		{"what is there already stays", []any{"mission", "told"}, []any{"WorkflowID", "mission.other"}, map[string]any{"mission": "told"}},
		{"somebody else's workflow", []any{"WorkflowID", "temporal-sys-x.y"}, nil, map[string]any{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			logger := temporallog.NewStructuredLogger(slog.New(logkey.Temporal(slog.NewJSONHandler(&out, nil))))
			temporallog.With(logger, c.with...).Info("said", c.args...)
			var record map[string]any
			require.NoError(t, json.Unmarshal(out.Bytes(), &record))
			for _, key := range []string{"time", "level", "msg", "WorkflowID", "TaskQueue"} {
				delete(record, key)
			}
			require.Equal(t, c.want, record)
		})
	}
}

func TestAnApplicationIsThreeKeys(t *testing.T) {
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).With(logkey.App(ledger.AppKey{Account: "default", Lattice: "prod", Name: "shop"})).Info("said")
	require.Contains(t, out.String(), `"account":"default","lattice":"prod","application":"shop"`)
}

// TestOneSpelling: whatever the product logs about a mission, a phase, a run, an
// application, a lattice or a node is under the key of that name, and no other.
func TestOneSpelling(t *testing.T) {
	subjects := []string{"mission", "launch", "phase", "run", "account", "lattice", "application", "app", "node", "gateway", "role"}
	named := []string{
		logkey.Mission, logkey.Launch, logkey.Phase, logkey.Run, logkey.Account, logkey.Lattice, logkey.Application, logkey.Node, logkey.Gateway, logkey.Role,
	}
	seen := 0
	for _, key := range loggedKeys(t, filepath.Join("..", "..")) {
		seen++
		if slices.Contains(named, key.name) {
			continue
		}
		words := strings.FieldsFunc(strings.ToLower(key.name), func(r rune) bool { return r == '_' || r == '-' || r == '.' })
		for _, word := range words {
			require.Falsef(t, slices.Contains(subjects, strings.TrimSuffix(word, "id")), "%s logs under %q: use a key of package logkey", key.at, key.name)
		}
	}
	require.Greater(t, seen, 100, "the records of the product were found")
}

type loggedKey struct {
	name string
	at   token.Position
}

// loggedKeys are the keys that are written out where something is logged.
func loggedKeys(t *testing.T, root string) []loggedKey {
	t.Helper()
	var keys []loggedKey
	files := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				for _, arg := range pairs(call) {
					if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						name, _ := strconv.Unquote(lit.Value)
						keys = append(keys, loggedKey{name, files.Position(lit.Pos())})
					}
				}
			}
			return true
		})
		return nil
	}))
	return keys
}

// pairs are the arguments of a call of a logger that are keys.
func pairs(call *ast.CallExpr) []ast.Expr {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	first, levels := 1, []string{"Debug", "Info", "Warn", "Error"}
	if method.Sel.Name == "With" {
		first = 0
	} else if !slices.Contains(levels, method.Sel.Name) {
		return nil
	}
	var keys []ast.Expr
	for i := first; i < len(call.Args); i += 2 {
		keys = append(keys, call.Args[i])
	}
	return keys
}
