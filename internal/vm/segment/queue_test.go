package segment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestQueue compares a queue with lists of what each sender has in it.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		senders := rapid.IntRange(1, 5).Draw(t, "senders")
		q := newQueue(senders)
		model := make([][]*frame, senders)
		waiting := func() (n int) {
			for _, lane := range model {
				n += len(lane)
			}
			return n
		}
		// One sender is drawn far more often, so that the queue fills.
		sender := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, senders-1))
		puts := rapid.SliceOfN(rapid.IntRange(-100, 400), 1, 20).Draw(t, "puts")
		for _, n := range puts {
			for ; n > 0; n-- {
				from, f := sender.Draw(t, "from"), new(frame)
				longest := from
				for i := range model {
					if len(model[i]) > len(model[longest]) {
						longest = i
					}
				}
				full := waiting() == 128
				model[from] = append(model[from], f)
				lost, whose := q.put(from, f)
				switch {
				case !full:
					require.Nil(t, lost)
				case longest == from:
					require.Same(t, f, lost)
					require.Equal(t, from, whose)
					model[from] = model[from][:len(model[from])-1]
				default:
					require.Same(t, model[longest][0], lost)
					require.Equal(t, longest, whose)
					model[longest] = model[longest][1:]
				}
			}
			for ; n < 0; n++ {
				f := q.take()
				if waiting() == 0 {
					require.Nil(t, f)
					continue
				}
				found := false
				for i := range model {
					if len(model[i]) > 0 && model[i][0] == f {
						model[i], found = model[i][1:], true
					}
				}
				require.True(t, found, "frames of one sender keep their order")
			}
			require.LessOrEqual(t, waiting(), 128)
		}
	})
}

// TestQueueIsFair has one sender fill the queue before others come.
func TestQueueIsFair(t *testing.T) {
	q := newQueue(3)
	for range 10 * maxQueue {
		q.put(0, &frame{n: 10})
	}
	for n := range 3 {
		lost, whose := q.put(1, &frame{n: 20 + n})
		require.Equal(t, 10, lost.n)
		require.Equal(t, 0, whose)
		_, whose = q.put(2, &frame{n: 30 + n})
		require.Equal(t, 0, whose)
	}
	var got []int
	for range 9 {
		got = append(got, q.take().n)
	}
	require.Equal(t, []int{10, 20, 30, 10, 21, 31, 10, 22, 32}, got)
	left := 0
	for q.take() != nil {
		left++
	}
	require.Equal(t, 128-9, left)
}

func TestBucket(t *testing.T) {
	var b bucket
	now := time.Unix(1_700_000_000, 0)
	burst := func() (n int) {
		for b.allow(now) {
			n++
		}
		return n
	}
	require.Equal(t, 200, burst())
	now = now.Add(time.Millisecond)
	require.Equal(t, 0, burst())
	now = now.Add(99 * time.Millisecond)
	require.Equal(t, 50, burst())
	now = now.Add(time.Hour)
	require.Equal(t, 200, burst())
}
