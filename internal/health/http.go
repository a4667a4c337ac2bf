package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Register serves /livez and /readyz: 200 when all is well, and 503 with what is
// not. The answer is a line for each check, or JSON where that is accepted or
// ?verbose asks for it.
func (h *Health) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", handler("livez", func(context.Context) Report { return h.Live() }))
	mux.HandleFunc("GET /readyz", handler("readyz", h.Ready))
}

func handler(name string, look func(context.Context) Report) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		report := look(r.Context())
		w.Header().Set("Cache-Control", "no-store")
		code := http.StatusOK
		if !report.OK {
			code = http.StatusServiceUnavailable
		}
		if r.URL.Query().Has("verbose") || strings.Contains(r.Header.Get("Accept"), "application/json") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			_ = encoder.Encode(report) // of plain values; nobody to tell when the client is gone
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprint(w, report.text(name))
	}
}

// text is a report for people, as Kubernetes writes its own.
func (r Report) text(name string) string {
	var b strings.Builder
	for _, c := range r.Checks {
		if c.OK {
			fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
		} else {
			fmt.Fprintf(&b, "[-]%s failed: %s\n", c.Name, c.Error)
		}
	}
	word := "passed"
	if !r.OK {
		word = "failed"
	}
	fmt.Fprintf(&b, "%s check %s\n", name, word)
	return b.String()
}
