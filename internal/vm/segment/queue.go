package segment

import "sync"

// frame is one Ethernet frame in a buffer that can hold one byte more than is
// allowed, so that a longer frame is seen to be longer.
type frame struct {
	n   int
	buf [maxFrame + 1]byte
}

func (f *frame) bytes() []byte { return f.buf[:f.n] }

// maxQueue is how many frames may wait for one port: 1.1 MiB.
const maxQueue = 128

// queue holds the frames that wait for one port, in a lane for each sender. The
// lanes are served in turn, and when the queue is full the longest lane loses a
// frame: who floods a port crowds out itself. It is safe for concurrent use.
type queue struct {
	ready chan struct{} // has an element when there may be frames

	mu    sync.Mutex
	lanes [][]*frame
	total int
	turn  int // the lane that is looked at first
}

func newQueue(senders int) *queue {
	return &queue{ready: make(chan struct{}, 1), lanes: make([][]*frame, senders)}
}

// put adds a frame of a sender. It returns the frame that there was no room for
// and whose it was, if there was none; that may be f itself.
func (q *queue) put(from int, f *frame) (lost *frame, whose int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.total == maxQueue {
		whose = from // of lanes of one length, the sender's own
		for i, lane := range q.lanes {
			if len(lane) > len(q.lanes[whose]) {
				whose = i
			}
		}
		if whose == from {
			return f, from
		}
		lost = q.pop(whose)
	}
	q.lanes[from] = append(q.lanes[from], f)
	q.total++
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return lost, whose
}

// take removes the next frame, and returns nil when there is none.
func (q *queue) take() *frame {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.total == 0 {
		return nil
	}
	for len(q.lanes[q.turn]) == 0 {
		q.turn = (q.turn + 1) % len(q.lanes)
	}
	f := q.pop(q.turn)
	q.turn = (q.turn + 1) % len(q.lanes)
	return f
}

func (q *queue) pop(lane int) *frame {
	f := q.lanes[lane][0]
	q.lanes[lane][0] = nil
	q.lanes[lane] = q.lanes[lane][1:]
	q.total--
	return f
}
