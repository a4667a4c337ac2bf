package render

import (
	"strings"

	"tidewait/internal/columns"
)

// cell is one field of a table.
type cell struct {
	text  string
	style style
}

func text(s string) cell       { return cell{text: Clean(s)} }
func statusCell(s string) cell { return cell{text: Clean(s), style: statusStyle[s]} }

// dash is what a table shows where there is nothing.
var dash = cell{text: "-", style: dim}

func textOrDash(s string) cell {
	if s == "" {
		return dash
	}
	return text(s)
}

// table lays rows out in columns two spaces apart under a header. The last
// column is cut to the width, but never below minWrap columns.
func (o Options) table(header []string, rows [][]cell) string {
	widths := tableWidths(header, rows)
	head := make([]cell, len(header))
	for i, h := range header {
		head[i] = cell{text: h, style: bold}
	}
	var out strings.Builder
	o.row(&out, widths, head)
	for _, row := range rows {
		o.row(&out, widths, row)
	}
	return out.String()
}

// tableGap is between two columns.
const tableGap = 2

// tableWidths is what each column of a table takes.
func tableWidths(header []string, rows [][]cell) []int {
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = columns.Of(h)
	}
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], columns.Of(c.text))
		}
	}
	return widths
}

func (o Options) row(out *strings.Builder, widths []int, row []cell) {
	last, used := len(row)-1, 0
	for i, c := range row[:last] {
		out.WriteString(o.paint(c.style, c.text))
		out.WriteString(strings.Repeat(" ", widths[i]-columns.Of(c.text)+tableGap))
		used += widths[i] + tableGap
	}
	c := row[last]
	if o.Width > 0 {
		c.text = columns.Cut(c.text, max(o.Width-used, minWrap))
	}
	out.WriteString(o.paint(c.style, c.text))
	out.WriteByte('\n')
}
