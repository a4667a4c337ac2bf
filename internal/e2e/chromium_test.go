package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium with one page.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// startBrowser starts Chromium, whose window is as large as a small laptop's, in
// the time zone of the product's own times.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // tests run as root, and the page is our own
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WindowSize(1440, 900),
		chromedp.Env("TZ=UTC"),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)
	allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, stop := chromedp.NewContext(allocated)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	return b
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, steps...))
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
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](pageText))
	require.NoError(b.t, err)
	return text
}

// shoot keeps a picture of the window.
func (b *browser) shoot(path string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(path, png, 0o644))
}
