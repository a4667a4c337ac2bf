// Package codecserver serves a payload codec over HTTP, in the protocol of Temporal's
// Web UI and of the temporal command: POST .../decode and .../encode. Whoever is
// answered can read everything, so it answers browsers of named origins only, and,
// where there is a token, those who have it.
package codecserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"
)

const (
	// maxRequest is more than a page of histories has: Temporal's own messages are
	// at most 4 MiB, and base64 makes them a third larger.
	maxRequest = 16 << 20
	// atOnce bounds the memory that requests take.
	atOnce = 8
	// patience bounds each request, from its first byte to its last.
	patience = 30 * time.Second
)

// Options say who is answered.
type Options struct {
	Codec   converter.PayloadCodec
	Origins []string // of Web UIs, such as http://127.0.0.1:8233
	Token   string   // that must come as "Authorization: Bearer TOKEN"; empty: none
	Log     *slog.Logger
}

// Serve answers until ctx ends, and then finishes what it has begun. It closes the
// listener.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	server := &http.Server{
		Handler:           Handler(o),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		stopped <- server.Shutdown(ending)
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the codec at %s: %w", l.Addr(), err)
	}
	return <-stopped
}

// Handler answers requests. Those that are too many wait.
func Handler(o Options) http.Handler {
	h := handler{Options: o, codec: converter.NewPayloadCodecHTTPHandler(o.Codec), slots: make(chan struct{}, atOnce)}
	return &h
}

type handler struct {
	Options
	codec http.Handler
	slots chan struct{}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !h.knows(w, r) {
		return
	}
	if r.Method == http.MethodOptions { // a browser asks whether it may ask
		w.Header().Set("Access-Control-Allow-Methods", "POST, OPTIONS")
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Namespace")
		w.Header().Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if !h.holds(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the token is missing or wrong: send Authorization: Bearer TOKEN, with the token of codec.token_file", http.StatusUnauthorized)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-r.Context().Done():
		return
	}
	if r.ContentLength > maxRequest {
		http.Error(w, fmt.Sprintf("the request is larger than %d bytes", maxRequest), http.StatusRequestEntityTooLarge)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	h.codec.ServeHTTP(w, r)
}

// knows reports whether the origin of a page that asks is among those that may. A
// program names none. A browser names one with every POST, also with those that it
// sends without asking first, and to a name that was bound to this address only now.
func (h *handler) knows(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	if len(origins) > 1 || !slices.Contains(h.Origins, origins[0]) {
		h.Log.Warn("refused a page that is not among codec.origins", "origin", strings.Join(origins, ", "))
		http.Error(w, "pages of this origin may not ask: codec.origins does not name it", http.StatusForbidden)
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origins[0])
	return true
}

// holds reports whether a request has the token. It takes as long for a wrong one.
func (h *handler) holds(r *http.Request) bool {
	if h.Token == "" {
		return true
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(h.Token)), sha256.Sum256([]byte(token))
	return strings.EqualFold(kind, "Bearer") && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}
