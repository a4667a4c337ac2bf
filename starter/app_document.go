package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tidewait/internal/oam"
	"tidewait/internal/render"
)

// appDocument is an application document that was read. Without a manifest
// there is a finding that says why.
type appDocument struct {
	shown    string // the source in messages: a path, <stdin>, or a URL without its password
	manifest oam.Manifest
	findings []appFinding // in the order of lines
}

// appFinding is one thing about a document, with the document.
type appFinding struct {
	File string `json:"file"`
	oam.Finding
}

// ruleReadable is the rule that a text which is no manifest breaks.
const ruleReadable = "readable"

// String is the finding in one line: file:line:column: level: path: message [rule].
func (f appFinding) String() string {
	at := f.File
	if f.Line > 0 {
		at += fmt.Sprintf(":%d", f.Line)
		if f.Column > 0 {
			at += fmt.Sprintf(":%d", f.Column)
		}
	}
	text := f.Message
	if f.Path != "" {
		text = f.Path + ": " + text
	}
	return render.Clean(fmt.Sprintf("%s: %s: %s [%s]", at, f.Level, text, f.Rule))
}

// errorCount is how many findings keep the document from being put.
func (d appDocument) errorCount() int {
	n := 0
	for _, f := range d.findings {
		if f.Level == oam.Error {
			n++
		}
	}
	return n
}

// json is the manifest as it is sent.
func (d appDocument) json() ([]byte, error) {
	text, err := d.manifest.JSON()
	if err != nil {
		return nil, fmt.Errorf("cannot write application %s as JSON: %w", d.manifest.Metadata.Name, err)
	}
	return text, nil
}

// loadApp reads a document that is to be sent. What is found in it goes to
// standard error; with an error among it, the document is refused.
func (c *cli) loadApp(ctx context.Context, source string) (appDocument, error) {
	d, err := c.readApp(ctx, source)
	if err != nil {
		return appDocument{}, err
	}
	for _, f := range d.findings {
		c.note("%s", f)
	}
	if n := d.errorCount(); n > 0 {
		return appDocument{}, usage("%s is not put: %s in it", d.shown, counted(n, "error"))
	}
	return d, nil
}

// readApp reads a document from a file, a URL or standard input (-) and checks
// it. Relative references to local images become absolute, against the
// directory of the file.
func (c *cli) readApp(ctx context.Context, source string) (appDocument, error) {
	d := appDocument{shown: shownSource(source)}
	src, err := c.readAppSource(ctx, source)
	if err != nil {
		return appDocument{}, err
	}
	parsed, err := oam.Parse(src, oam.Detect)
	if err != nil {
		d.findings = []appFinding{d.unreadable(err)}
		return d, nil
	}
	d.findings = d.inOrder(parsed.Validate())
	d.manifest = parsed.Manifest
	if !isURL(source) {
		err = d.resolveImages(source)
	}
	return d, err
}

func (d appDocument) unreadable(err error) appFinding {
	finding := oam.Finding{Level: oam.Error, Rule: ruleReadable, Message: err.Error()}
	var where *oam.ParseError
	if errors.As(err, &where) {
		finding.Path, finding.Line, finding.Column, finding.Message = where.Path, where.Line, where.Column, where.Message
	}
	return appFinding{d.shown, finding}
}

func (d appDocument) inOrder(findings []oam.Finding) []appFinding {
	all := make([]appFinding, len(findings))
	for i, f := range findings {
		all[i] = appFinding{d.shown, f}
	}
	slices.SortStableFunc(all, func(a, b appFinding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// localImage begins an image reference to a file of the host's machine.
const localImage = "file://"

func (d appDocument) resolveImages(source string) error {
	dir := "."
	if source != "-" {
		dir = filepath.Dir(source)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("cannot find the directory of %s: %w", d.shown, err)
	}
	for i := range d.manifest.Spec.Components {
		image := &d.manifest.Spec.Components[i].Properties.Image
		if path, local := strings.CutPrefix(*image, localImage); local && !filepath.IsAbs(path) {
			*image = localImage + filepath.Join(dir, path)
		}
	}
	return nil
}

func isURL(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}

func shownSource(source string) string {
	if source == "-" {
		return "<stdin>"
	}
	if u, err := url.Parse(source); err == nil && isURL(source) {
		return u.Redacted()
	}
	return source
}

func (c *cli) readAppSource(ctx context.Context, source string) ([]byte, error) {
	if isURL(source) {
		return fetch(ctx, source)
	}
	src, err := c.readLocal(source)
	if err != nil {
		return nil, usage("cannot read the application document: %w", err)
	}
	return src, nil
}

func (c *cli) readLocal(source string) ([]byte, error) {
	if source == "-" {
		return readBounded(c.in)
	}
	file, err := os.Open(source)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readBounded(file)
}

// readBounded reads no more than it takes to see that a document is too long.
func readBounded(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, oam.MaxDocumentBytes+1))
}

// fetchTimeout bounds the reading of a document from a URL.
const fetchTimeout = 5 * time.Second

func fetch(ctx context.Context, source string) ([]byte, error) {
	shown := shownSource(source)
	asking, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(asking, http.MethodGet, source, nil)
	if err != nil {
		return nil, usage("cannot read the application document: %s is not a URL", shown)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fetchFault(ctx, shown, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, usage("cannot read the application document: %s answered %s", shown, answer.Status)
	}
	src, err := readBounded(answer.Body)
	if err != nil {
		return nil, fetchFault(ctx, shown, err)
	}
	return src, nil
}

func fetchFault(ctx context.Context, shown string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return unreachable("cannot read the application document: %s did not send it in %s", shown, fetchTimeout)
	}
	var outer *url.Error
	if errors.As(err, &outer) { // it names the URL again, with its password
		err = outer.Err
	}
	return unreachable("cannot read the application document from %s: %w", shown, err)
}

// isAppName tells the name of an application from a document: a file's name has
// a dot or a slash.
func isAppName(argument string) bool {
	return argument != "-" && oam.CheckName(argument) == nil
}

// target is the application, and perhaps the version, that a command is about.
type appTarget struct {
	name    string
	version *string
}

// targetOf finds what NAME [VERSION] or a document's source means.
func (c *cli) targetOf(ctx context.Context, args []string) (appTarget, error) {
	if isAppName(args[0]) {
		t := appTarget{name: args[0]}
		if len(args) > 1 {
			t.version = &args[1]
		}
		return t, nil
	}
	if len(args) > 1 {
		return appTarget{}, usage("%s is a document, which says its version; leave out %q", shownSource(args[0]), args[1])
	}
	d, err := c.readApp(ctx, args[0])
	if err != nil {
		return appTarget{}, err
	}
	if d.manifest.Metadata.Name == "" {
		return appTarget{}, usage("%s names no application: %s", d.shown, d.findings[0])
	}
	return targetIn(d.manifest), nil
}

func targetIn(m oam.Manifest) appTarget {
	t := appTarget{name: m.Metadata.Name}
	if version, says := m.Metadata.Annotations[oam.AnnotationVersion]; says {
		t.version = &version
	}
	return t
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
