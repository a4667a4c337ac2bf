package ledger_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
)

// root is the source tree.
const root = "../.."

// waitCodes is the closed list, written out.
var waitCodes = map[string][]string{
	"capacity": {
		"capacity_cpu", "capacity_memory", "capacity_disk", "capacity_slots", "capacity_fragmented", "behind_in_queue", "held_for_head",
		"starting_limit", "nodes_draining", "nodes_lost", "no_nodes_registered", "not_evaluated", "placer_unavailable",
	},
	"node":       {"node_silent"},
	"gateway":    {"gateway_unreachable", "results_bucket_full"},
	"hold":       {"awaiting_release"},
	"observer":   {"observer_absent"},
	"lattice":    {"never_observed", "no_live_hosts", "no_eligible_host", "not_enough_hosts", "hosts_taken"},
	"backoff":    {"command_failed", "command_refused", "command_timed_out"},
	"dependency": {"config_missing", "secret_missing", "shared_application_missing", "link_conflict"},
}

// otherCodes are codes of things that do not wait: they have ended, or never began.
var otherCodes = []string{
	"backend_unsupported", "exceeds_every_node", "labels_unmatched", "arch_unmatched", "request_invalid", // no known node could ever run it
	"cancelled", "internal", "out_of_memory", "node_lost", "drained", "workflow_lost", // how a phase or a run ended
}

func TestWaitCodes(t *testing.T) {
	require.Equal(t, waitCodes, ledger.WaitCodes())
	kinds := map[string][]string{}
	for kind, codes := range waitCodes {
		for _, code := range codes {
			kinds[code] = append(kinds[code], kind)
		}
	}
	for code, of := range kinds {
		require.Len(t, of, 1, "%s is of one kind", code)
		if slices.Contains([]string{"lattice", "backoff", "dependency"}, of[0]) {
			require.Equal(t, of[0], ledger.KindOf(code))
		} else {
			require.Empty(t, ledger.KindOf(code), "no application waits with %s of itself", code)
		}
	}
}

var (
	codeName  = regexp.MustCompile(`^[cC]ode[A-Z]`)
	codeValue = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
)

// TestNoCodeIsOutsideTheList walks the source. A constant that is called a code is of
// the list, or of those that end something; and nothing that waits has a code that is
// written out in its place.
func TestNoCodeIsOutsideTheList(t *testing.T) {
	var constants, literals []string
	for _, dir := range []string{"activities", "internal", "worker", "workflows"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ValueSpec:
					for i, name := range n.Names {
						if i < len(n.Values) && codeName.MatchString(name.Name) && strings.Contains(packagesOfCodes, file.Name.Name+" ") {
							constants = append(constants, text(n.Values[i]))
						}
					}
				case *ast.CompositeLit:
					if name := typeName(n.Type); name == "wait" || name == "Pause" || name == "OpenWait" || name == "AppWait" || name == "Waiting" {
						literals = append(literals, codesIn(n)...)
					}
				}
				return true
			})
			return nil
		}))
	}
	constants = slices.DeleteFunc(constants, func(value string) bool { return !codeValue.MatchString(value) })
	var waits, others []string
	for _, code := range constants {
		if slices.Contains(otherCodes, code) {
			others = append(others, code)
		} else {
			waits = append(waits, code)
		}
	}
	var all []string
	for _, codes := range waitCodes {
		all = append(all, codes...)
	}
	unique := func(s []string) []string { slices.Sort(s); return slices.Compact(s) }
	require.Equal(t, unique(all), unique(waits), "each is a constant, and there are no others")
	require.Equal(t, unique(slices.Clone(otherCodes)), unique(others))
	require.Empty(t, literals, "a code of a wait is named, not written out")
}

// packagesOfCodes are those whose constants called codes are codes of waits or ends.
const packagesOfCodes = "capacity ledger scaler workflows observatory store engine "

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// codesIn are the codes that a composite literal writes out.
func codesIn(n *ast.CompositeLit) (codes []string) {
	for _, e := range n.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := pair.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "code") && text(pair.Value) != "" {
			codes = append(codes, text(pair.Value))
		}
	}
	return codes
}

// text is the value of a string literal; empty: it is none.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return value
}

// TestEachKindHasItsPage reads docs/waits: each code is in the table of exactly the
// page of its kind, and each page says what the wait means, who can end it, and how.
func TestEachKindHasItsPage(t *testing.T) {
	pages, err := os.ReadDir(filepath.Join(root, "docs", "waits"))
	require.NoError(t, err)
	documented := map[string][]string{}
	for _, page := range pages {
		kind, isPage := strings.CutSuffix(page.Name(), ".md")
		if !isPage {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, "docs", "waits", page.Name()))
		require.NoError(t, err)
		body := string(data)
		require.True(t, strings.HasPrefix(body, "# Wait: "+kind+"\n"), page.Name())
		for _, part := range []string{"**Meaning.** ", "**Since** ", "**Bound.** ", "**Next look.** ", "**Ends by**", "\n## Where it is shown\n", "\n## Who can end it\n"} {
			require.Contains(t, body, part, page.Name())
		}
		documented[kind] = codesOfPage(body)
	}
	for kind, codes := range waitCodes {
		want := slices.Sorted(slices.Values(codes))
		got := slices.Sorted(slices.Values(documented[kind]))
		require.Equal(t, want, slices.Compact(got), "docs/waits/%s.md", kind)
	}
	require.Len(t, documented, len(waitCodes))
}

var (
	codeRow  = regexp.MustCompile("(?m)^\\| (`[a-z]+_[a-z_]+`(?: `[a-z_]+`)*) \\|")
	codeLine = regexp.MustCompile("(?m)^\\*\\*Code\\.\\*\\* `([a-z_]+)`")
	inTicks  = regexp.MustCompile("`([a-z_]+)`")
)

// codesOfPage are the codes that a page defines: in its table, or as its only one.
func codesOfPage(body string) []string {
	var codes []string
	for _, row := range codeRow.FindAllStringSubmatch(body, -1) {
		for _, code := range inTicks.FindAllStringSubmatch(row[1], -1) {
			codes = append(codes, code[1])
		}
	}
	for _, line := range codeLine.FindAllStringSubmatch(body, -1) {
		codes = append(codes, line[1])
	}
	return codes
}
