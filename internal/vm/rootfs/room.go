package rootfs

import "io"

// room is what an image that is being pulled takes. Others go before there would be
// more than the store may have, not after.
type room struct {
	store *Store
	bytes int64 // guarded by Store.mu
}

// need makes room for so many bytes in all.
func (r *room) need(bytes int64) {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes <= r.bytes {
		return
	}
	s.coming += bytes - r.bytes
	r.bytes = bytes
	s.evict(nil)
}

// end says that the image is not coming any more, or has come.
func (r *room) end() {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming -= r.bytes
	r.bytes = 0
}

// roomStep is how much a file system grows before there is looked for room again.
const roomStep = 16 << 20

// growing is a file system that is written. The sizes in a manifest are those of
// what is sent; what becomes of it may be larger.
type growing struct {
	io.WriteSeeker
	room    *room
	written int64
	next    int64 // when to look for room again
}

// Write implements [io.Writer].
func (g *growing) Write(p []byte) (int, error) {
	if g.written += int64(len(p)); g.written > g.next {
		g.next = g.written + roomStep
		g.room.need(g.written)
	}
	return g.WriteSeeker.Write(p)
}
