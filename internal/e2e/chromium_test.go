package e2e

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// screenshots is where pictures of pages go; empty: none are taken.
var screenshots = flag.String("screenshots", "", "directory for pictures of the Web UI, such as docs/images")

// browser is a headless Chromium with one page.
type browser struct {
	t   *testing.T
	ctx context.Context
	ui  string // the address of the Web UI
}

// startBrowser starts Chromium with a window as large as a small laptop's, in the
// time zone of the product's own times.
func startBrowser(t *testing.T, ui string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // tests may run as root, and the pages are our own
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Env("TZ=UTC"),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)
	allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, stop := chromedp.NewContext(allocated)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: ctx, ui: ui}
	require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(1440, 900))) // the page lives as long as this context
	return b
}

// in is the browser for one part of a test.
func (b *browser) in(t *testing.T) *browser {
	own := *b
	own.t = t
	return &own
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// evaluate returns the value of a JavaScript expression, which is a string.
func (b *browser) evaluate(script string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string](script))
	require.NoError(b.t, err)
	return value
}

// pageText is what a page and the frames in it say.
const pageText = `(function read(d) {
	let text = d.body ? d.body.innerText : '';
	for (const f of d.querySelectorAll('iframe')) { if (f.contentDocument) text += '\n' + read(f.contentDocument); }
	return text;
})(document)`

// text returns what the page says now.
func (b *browser) text() string {
	b.t.Helper()
	return b.evaluate(pageText)
}

// open opens a page of the Web UI and returns when it says something.
func (b *browser) open(path, says string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.ui + path))
	b.waitFor(says)
}

func (b *browser) waitFor(says string) {
	b.t.Helper()
	b.eventually("the page says "+says, func() bool { return strings.Contains(b.text(), says) })
}

func (b *browser) eventually(what string, holds func() bool) {
	b.t.Helper()
	eventually(b.t, what, holds, b.text)
}

// link returns where a link of a page leads that says exactly a text.
func (b *browser) link(text string) string {
	b.t.Helper()
	path := b.evaluate(`Array.from(document.querySelectorAll('iframe')).flatMap(f => Array.from(f.contentDocument.querySelectorAll('a')))
	.filter(a => a.innerText === ` + quoted(text) + `).map(a => a.getAttribute('href')).join()`)
	require.NotEmptyf(b.t, path, "no link says %s", text)
	return path
}

// cutOff names the lines of the frames of a page that are not seen whole.
const cutOff = `Array.from(document.querySelectorAll('iframe')).flatMap(f => Array.from(f.contentDocument.querySelectorAll('p, li'))
	.filter(e => e.getBoundingClientRect().bottom > f.clientHeight).map(e => e.innerText)).join('\n')`

// says asserts that a page says something, and that nothing of it is cut off.
func (b *browser) says(parts ...string) {
	b.t.Helper()
	text := b.text()
	for _, part := range parts {
		require.Contains(b.t, text, part)
	}
	require.Empty(b.t, b.evaluate(cutOff), "lines are cut off")
}

// shoot keeps a picture of the window, where pictures are wanted.
func (b *browser) shoot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	f, err := os.Create(filepath.Join(*screenshots, "webui-"+name+".png"))
	require.NoError(b.t, err)
	defer f.Close()
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(f, fewColours(b.t, shot)))
}

// fewColours is a picture in its 256 most frequent colours, which makes it a third
// as large.
func fewColours(t *testing.T, data []byte) image.Image {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	seen := map[color.Color]int{}
	bounds := full.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			seen[full.At(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int { return seen[b] - seen[a] })
	few := image.NewPaletted(bounds, frequent[:min(256, len(frequent))])
	draw.Draw(few, bounds, full, bounds.Min, draw.Src)
	return few
}
