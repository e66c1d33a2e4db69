# SPDX-License-Identifier: Apache-2.0
"""The rows of the table as pictures: docs/benchmarks-*.svg, one for each file of rows."""

import math
from xml.sax.saxutils import escape

from bench.table import DOC

# The file of rows -> what its picture is called, and says above.
PICTURES = {'rows_read': ('reading', 'Reading through a mount'),
            'rows_list': ('listing', 'Listing'),
            'rows_write': ('writing', 'Saving through a mount, durable'),
            'rows_python': ('python', 'The Python package, without a mount'),
            'rows_tools': ('commands', 'Commands'),
            'rows_convert': ('convert', 'export and convert'),
            'rows_url': ('url', 'From a web server, 20 ms and 200 MB/s away'),
            'rows_mpi': ('jobs', 'Jobs of several ranks')}
LABELS, PLOT, STEP, TOP, FOOT, MARGIN = 520, 420, 24, 56, 40, 20
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
INK, FAINT, GOOD, BAD, PLAIN = '#222222', '#dddddd', '#1b7837', '#b35806', '#2166ac'


def speeds(r):
    """Median, worst and best of peer's seconds / ours, and the target in the same terms; 1 is as fast as the peer."""
    ratio, target = r['ratio'], r['target'].split(',')[0]
    limit = float(target[2:]) if target and target.split()[-1].replace('.', '').isdigit() else None
    if target.startswith('≤'):
        return 1 / ratio['median'], 1 / ratio['max'], 1 / ratio['min'], limit and 1 / limit
    return ratio['median'], ratio['min'], ratio['max'], limit


def picture(title, results):
    """One row for each result that has a peer: the median as a dot, all rounds as a line, the target as a tick."""
    rows = [(r, *speeds(r)) for r in results]
    values = [v for row in rows for v in row[1:] if v]
    low, high = min([0.5, *values]), max([2, *values])
    ticks = [t for t in TICKS if low <= t <= high]
    left, right = math.log(low) - 0.1, math.log(high) + 0.1
    bottom = TOP + STEP * len(rows)

    def x(value):
        return LABELS + PLOT * (math.log(value) - left) / (right - left)

    def line(x1, y1, x2, y2, color, width=1):
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"/>'

    def text(at, y, words, anchor, size=12, weight='normal'):
        return (f'<text x="{at:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
                f'fill="{INK}">{escape(words)}</text>')

    width, height = LABELS + PLOT + MARGIN, bottom + FOOT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           'font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           text(MARGIN, 24, title, 'start', 16, 'bold')]
    for t in ticks:
        out += [line(x(t), TOP - 8, x(t), bottom, INK if t == 1 else FAINT), text(x(t), TOP - 14, f'{t:g}', 'middle', 11)]
    for i, (r, median, worst, best, limit) in enumerate(rows):
        y = TOP + STEP * i + STEP / 2
        color = {True: GOOD, False: BAD, None: PLAIN}[r['met']]
        out += [text(LABELS - 12, y + 4, f'{r["row"]}: {r["ours_name"]} / {r["peer_name"]}', 'end'),
                line(x(worst), y, x(best), y, color, 2),
                f'<circle cx="{x(median):.1f}" cy="{y:.1f}" r="4.5" fill="{color}"/>']
        if limit:
            out.append(line(x(limit), y - 8, x(limit), y + 8, INK, 2))
    out += [text(width - MARGIN, bottom + 24, 'times as fast as the peer: median (dot), all rounds (line), target (tick); '
                 'green: met, orange: not met', 'end', 11), '</svg>']
    return '\n'.join(out) + '\n'


def write(results, module_of):
    """Write the pictures of these results; returns the lines of the document that show them."""
    shown = []
    for module, (name, title) in PICTURES.items():
        rows = [r for r in results if r['ratio'] and module_of(r['bench']) == module]
        path = DOC.with_name(f'benchmarks-{name}.svg')
        path.unlink(missing_ok=True)
        if rows:
            path.write_text(picture(title, rows))
            shown.append(f'![{title}: times as fast as the peer]({path.name})')
    return shown
