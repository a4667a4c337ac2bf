package render

import (
	"strconv"

	"tidewait/internal/api"
	"tidewait/internal/columns"
)

// waitColumn is a column of the list of waits.
type waitColumn struct {
	head string
	cell func(Options, api.Wait) cell
	// brief says the same in fewer words; nil: it cannot.
	brief func(Options, api.Wait) cell
}

var (
	columnWho   = waitColumn{head: "WHO", cell: func(_ Options, w api.Wait) cell { return text(Waiter(w)) }}
	columnKind  = waitColumn{head: "KIND", cell: func(_ Options, w api.Wait) cell { return text(w.Kind) }}
	columnCode  = waitColumn{head: "CODE", cell: func(_ Options, w api.Wait) cell { return cell{Clean(w.Code), yellow} }}
	columnSince = waitColumn{head: "SINCE", cell: func(o Options, w api.Wait) cell { return text(o.clock(w.Since)) }}
	columnAge   = waitColumn{
		head:  "WAITED",
		cell:  func(o Options, w api.Wait) cell { return cell{o.elapsed(w), o.urgency(w)} },
		brief: func(o Options, w api.Wait) cell { return cell{o.share(w), o.urgency(w)} },
	}
	columnNext = waitColumn{head: "NEXT LOOK", cell: Options.nextLook}
	// A place in line has the expected start behind it.
	columnPlace  = waitColumn{head: "PLACE", cell: Options.placeInLine}
	columnReason = waitColumn{head: "REASON", cell: func(_ Options, w api.Wait) cell { return text(w.Reason) }}
)

// waitLayouts are the columns of the list, from wide terminals to narrow ones: who,
// why and for how long are given up last.
var waitLayouts = []struct {
	columns []waitColumn
	brief   bool
	reason  int // columns that a reason has at least
}{
	{[]waitColumn{columnWho, columnKind, columnCode, columnSince, columnAge, columnNext, columnPlace, columnReason}, false, 30},
	{[]waitColumn{columnWho, columnKind, columnCode, columnSince, columnAge, columnPlace, columnReason}, false, 30},
	{[]waitColumn{columnWho, columnKind, columnCode, columnSince, columnAge, columnReason}, false, 30},
	{[]waitColumn{columnWho, columnKind, columnCode, columnSince, columnAge, columnReason}, true, 30},
	{[]waitColumn{columnWho, columnCode, columnSince, columnAge, columnReason}, true, 30},
	{[]waitColumn{columnWho, columnCode, columnAge, columnReason}, true, 20},
	{[]waitColumn{columnWho, columnCode, columnReason}, true, 20},
}

// whoColumns is what a name keeps on the narrowest terminals.
const whoColumns = 16

// Waits returns one line per wait, in the order given. On a terminal the columns
// that it has no room for are left out and reasons are cut; the last line says so
// then.
func (o Options) Waits(waits []api.Wait) string {
	if len(waits) == 0 {
		return "nothing waits\n"
	}
	var header []string
	var rows [][]cell
	for _, layout := range waitLayouts {
		header, rows = o.waitTable(waits, layout.columns, layout.brief)
		if o.Width == 0 || fixedColumns(header, rows)+layout.reason <= o.Width {
			break
		}
	}
	if o.Width == 0 {
		return o.table(header, rows)
	}
	if over := fixedColumns(header, rows) + minWrap - o.Width; over > 0 {
		shortenFirst(rows, over)
	}
	out := o.table(header, rows)
	if o.cutsLast(header, rows) {
		out += o.paint(dim, columns.Cut("… cut: see all of it with `mission show`, `app status` or `-o json`", o.Width)) + "\n"
	}
	return out
}

func (o Options) waitTable(waits []api.Wait, columns []waitColumn, brief bool) (header []string, rows [][]cell) {
	for _, c := range columns {
		header = append(header, c.head)
	}
	for _, w := range waits {
		var row []cell
		for _, c := range columns {
			show := c.cell
			if brief && c.brief != nil {
				show = c.brief
			}
			row = append(row, show(o, w))
		}
		rows = append(rows, row)
	}
	return header, rows
}

// fixedColumns is what all columns but the last take, with the gaps behind them.
func fixedColumns(header []string, rows [][]cell) int {
	widths := tableWidths(header, rows)
	total := 0
	for _, w := range widths[:len(widths)-1] {
		total += w + tableGap
	}
	return total
}

// shortenFirst cuts the cells of the first column so that it takes so much less, if
// it can.
func shortenFirst(rows [][]cell, less int) {
	widest := 0
	for _, row := range rows {
		widest = max(widest, columns.Of(row[0].text))
	}
	limit := max(widest-less, whoColumns)
	for _, row := range rows {
		row[0].text = columns.Cut(row[0].text, limit)
	}
}

// cutsLast reports whether the table shows less than all of a last cell.
func (o Options) cutsLast(header []string, rows [][]cell) bool {
	room := max(o.Width-fixedColumns(header, rows), minWrap)
	for _, row := range rows {
		if columns.Of(row[len(row)-1].text) > room {
			return true
		}
	}
	return false
}

// urgency is the colour of how long w has lasted: red when it fails soon.
func (o Options) urgency(w api.Wait) style {
	if w.Bound == nil {
		return plain
	}
	if left, whole := w.Bound.Sub(o.Now), w.Bound.Sub(w.Since); left < whole/10 {
		return red
	}
	return plain
}

// share is how much of its bound w has used, or how long it has lasted where it has
// none.
func (o Options) share(w api.Wait) string {
	if w.Bound == nil {
		return Duration(o.Now.Sub(w.Since))
	}
	return elapsedOf(o.Now.Sub(w.Since), w.Bound.Sub(w.Since))
}

func (o Options) nextLook(w api.Wait) cell {
	switch {
	case w.NextCheck == nil:
		return textOrDash(api.NextLookAt(w))
	case o.Width == 0:
		return text(o.relative(*w.NextCheck))
	}
	return text(o.moment(*w.NextCheck))
}

func (o Options) placeInLine(w api.Wait) cell {
	if w.Position == 0 {
		return dash
	}
	return text(strconv.Itoa(w.Position) + o.expected(w))
}
