# SPDX-License-Identifier: Apache-2.0
"""D.html in a real browser: it loads from the mount without an error or a request, and tree, search and map work."""

import os
import pathlib
import re
import urllib.parse

import numpy as np
import pytest

from lib import browser

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'
KERNEL = 'kernel.npy'

pytestmark = pytest.mark.skipif(not browser.program(), reason='there is no chromium on this machine')


@pytest.fixture(scope='module')
def browsing(tmp_path_factory):
    b = browser.Browser(tmp_path_factory.mktemp('browser') / 'browser')
    yield b
    b.close()


@pytest.fixture
def chromium(browsing):
    return browsing.page(1280, 800)


def address(path):
    return 'file://' + urllib.parse.quote(str(path))


def rows(b):
    """Return the visible rows of the tree: the first column of each."""
    return b.eval("[...document.querySelectorAll('#rows .row')].map(r => r.children[0].textContent.trim())")


def search(b, text):
    b.eval("document.getElementById('search').focus(); document.getElementById('search').select(); "
           "document.getElementById('count').textContent = ''")
    b.type(text)
    b.wait("document.getElementById('count').textContent")
    return b.eval("document.getElementById('count').textContent")


def inked(b):
    """How many different colours the map has."""
    return b.eval("""(() => {
        const c = document.getElementById('tree'), g = c.getContext('2d');
        const d = new Uint32Array(g.getImageData(0, 0, c.width, c.height).data.buffer);
        return new Set(d).size; })()""")


def test_it_loads_without_an_error_or_a_request(mount, chromium):
    m = mount(SAMPLE)
    url = address(m / '1000.html')
    chromium.open(url, "document.querySelectorAll('#rows .row').length")
    assert chromium.complaints() == []
    assert [r for r in chromium.requests() if r != url and not r.startswith('data:')] == []
    assert '1000' in chromium.eval('document.title')
    assert chromium.eval("document.getElementById('totals').textContent").strip()
    assert any('state' in r for r in rows(chromium))
    assert inked(chromium) > 3


def test_search_finds_and_narrows(mount, chromium):
    m = mount(SAMPLE)
    chromium.open(address(m / '1000/state.html'), "document.querySelectorAll('#rows .row').length")
    total = chromium.eval("document.querySelectorAll('#rows .row').length")
    assert search(chromium, 'mlp/*/kernel').split()[0] != '0'
    found = rows(chromium)
    assert any(KERNEL in r for r in found) and not any('run_name' in r for r in found)
    assert search(chromium, 'nosuchleafanywhere').split()[0] in ('0', 'nothing', 'no')
    chromium.eval("document.getElementById('search').value = ''; "
                  "document.getElementById('search').dispatchEvent(new Event('input'))")
    chromium.wait(f"document.querySelectorAll('#rows .row').length === {total}")
    assert chromium.complaints() == []


def test_directories_open_and_close(mount, chromium):
    m = mount(SAMPLE)
    chromium.open(address(m / '1000/state.html'), "document.querySelectorAll('#rows .row').length")
    chromium.eval("document.getElementById('open').click()")
    everything = len(rows(chromium))
    chromium.eval("document.getElementById('close').click()")
    closed = len(rows(chromium))
    assert closed < everything
    chromium.eval("document.querySelector('#rows .row .twist').click()")
    assert len(rows(chromium)) != closed
    assert chromium.complaints() == []


def test_a_leaf_is_described_when_it_is_chosen(mount, chromium):
    m = mount(SAMPLE)
    chromium.open(address(m / '1000/state.html'), "document.querySelectorAll('#rows .row').length")
    search(chromium, 'params mlp/up/kernel')
    x, y = chromium.eval("""(() => {
        const all = [...document.querySelectorAll('#rows .row')];
        const r = all.find(e => e.children[0].textContent.includes('kernel')).getBoundingClientRect();
        return [r.x + r.width / 2, r.y + r.height / 2]; })()""")
    chromium.click(x, y)
    text = chromium.eval("document.getElementById('detail').textContent")
    assert 'bfloat16' in text and '32' in text and '64' in text, text
    assert chromium.complaints() == []


def test_a_click_in_the_map_chooses_what_is_there(mount, chromium):
    m = mount(SAMPLE)
    chromium.open(address(m / '1000/state.html'), "document.querySelectorAll('#rows .row').length")
    before = chromium.eval("document.getElementById('detail').textContent")
    x, y = chromium.eval("""(() => { const r = document.getElementById('tree').getBoundingClientRect();
        return [r.x + r.width / 3, r.y + r.height / 3]; })()""")
    chromium.click(x, y)
    assert chromium.eval("document.getElementById('detail').textContent") != before
    assert chromium.complaints() == []


def test_names_are_text_and_never_markup(mount, chromium, cases):
    """Keys with quotes, tags and line ends are shown, not run."""
    case = cases('names-perleaf')
    m = mount(case.path)
    chromium.open(address(m / '.html'), "document.querySelectorAll('#rows .row').length")
    assert chromium.complaints() == []
    assert chromium.eval("document.querySelectorAll('#rows script, #rows img, #detail script').length") == 0


@pytest.mark.serial
def test_twenty_thousand_leaves_open_in_less_than_three_seconds(mount, chromium, cases):
    """From the click to the first rows, the daemon's work included; of the processor, whatever else the machine does."""
    m = mount(cases('leaves-20000').path)
    chromium.call('Performance.enable', timeDomain='threadTicks')
    before = processor_seconds(m.pid)
    chromium.open(address(m / '.html'), "document.querySelectorAll('#rows .row').length")
    metrics = {v['name']: v['value'] for v in chromium.call('Performance.getMetrics')['metrics']}
    took = metrics['ProcessTime'], processor_seconds(m.pid) - before
    assert sum(took) < 3.0, took
    assert search(chromium, 'layer150/w77').split()[0] == '1'
    assert chromium.complaints() == []


def processor_seconds(pid):
    """Return the processor time of a process, in user mode and in the kernel."""
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def test_a_report_shows_histograms(run, chromium, tmp_path):
    out = tmp_path / 'report.html'
    run('report', SAMPLE / '1000/state', out)
    chromium.open(address(out), "document.querySelectorAll('#rows .row').length")
    search(chromium, 'params mlp/up/kernel')
    chromium.eval("[...document.querySelectorAll('#rows .row')]"
                  ".find(r => r.title.endsWith('mlp/up/kernel.npy')).click()")
    bars = chromium.eval("[...document.querySelectorAll('#hist rect')].map(r => r.textContent.split(' ')[0])")
    assert len(bars) == 48 and sum(map(int, bars)) == 32 * 64
    text = chromium.eval("document.getElementById('detail').textContent")
    assert 'mean' in text and 'nan' in text
    assert chromium.complaints() == []


# ---- the page of a report ----

@pytest.fixture
def screen(browsing):
    """The size of an ordinary window."""
    return browsing.page(1400, 900)


@pytest.fixture
def faulty(run, tmp_path):
    """(page, arrays): two leaves with NaN or infinities among clean ones, in a step."""
    r = np.random.default_rng(3)
    arrays = {f'params/layer{i}/{name}': r.standard_normal((8, 4)).astype(np.float32) for i in range(4) for name in 'ab'}
    arrays['params/layer1/a'][0, :3] = np.nan
    arrays['params/layer2/b'][1, 1] = np.inf
    for path, a in arrays.items():
        (tmp_path / 'in' / path).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / 'in' / f'{path}.npy', a)
    run('save', tmp_path / 'in', tmp_path / 'ckpts/7')
    run('report', tmp_path / 'ckpts/7/default', tmp_path / 'report.html')
    return tmp_path / 'report.html', arrays


def cells(b):
    return b.eval("[...document.querySelectorAll('#rows .row')].map(r => [r.title, ...[...r.children].map(c => c.textContent)])")


def test_the_totals_say_what_is_not_a_number(screen, faulty):
    page, arrays = faulty
    screen.open(address(page), "document.querySelectorAll('#rows .row').length")
    health = "document.getElementById('health')"
    assert screen.eval(f'{health}.textContent') == '3 NaN, 1 Inf in 2 leaves'
    red, green, blue = map(int, re.findall(r'\d+', screen.eval(f'getComputedStyle({health}).color'))[:3])
    assert red > 2 * green and red > 2 * blue
    text = screen.eval("document.querySelector('header').textContent")
    assert str(page.parent / 'ckpts/7/default') in text and re.search(r'\d{4}-\d\d-\d\d \d\d:\d\d UTC', text)
    assert '8 leaves' in text and '256 parameters' in text
    screen.eval(f'{health}.click()')
    assert [row[0] for row in cells(screen)[:2]] == ['params/layer1/a.npy', 'params/layer2/b.npy']
    assert [row[-1] for row in cells(screen)[:3]] == ['3', '1', '']
    assert screen.complaints() == []


def test_clean_numbers_are_said_to_be_so(run, screen, tmp_path):
    run('report', SAMPLE / '1000/state', tmp_path / 'r.html')
    screen.open(address(tmp_path / 'r.html'), "document.querySelectorAll('#rows .row').length")
    assert screen.eval("document.getElementById('health').className") == ''
    assert 'no NaN' in screen.eval("document.getElementById('health').textContent")


@pytest.mark.parametrize('by', ['min', 'max', 'std', 'norm'])
def test_leaves_are_sorted_by_their_numbers(screen, faulty, by):
    page, arrays = faulty
    screen.open(address(page), "document.querySelectorAll('#rows .row').length")
    finite = {k: v[np.isfinite(v)].astype(np.float64) for k, v in arrays.items()}
    values = {k: {'min': v.min(), 'max': v.max(), 'std': v.std(), 'norm': np.sqrt((v * v).sum())}[by] for k, v in finite.items()}
    screen.eval(f"document.querySelector('[data-sort={by}]').click()")
    rows = cells(screen)
    assert [row[0] for row in rows] == [f'{k}.npy' for k in sorted(values, key=values.get, reverse=True)]
    at = ['min', 'max', 'std', 'norm'].index(by) + 4
    for row in rows:
        assert float(row[at].replace('\u2212', '-')) == pytest.approx(values[row[0].removesuffix('.npy')], rel=6e-3)
    screen.eval(f"document.querySelector('[data-sort={by}]').click()")
    assert [row[0] for row in cells(screen)] == [row[0] for row in rows][::-1]


def test_a_link_to_a_leaf(screen, faulty):
    page, _ = faulty
    screen.open(address(page) + '#params/layer2/b.npy', "document.querySelectorAll('#rows .row.on').length")
    assert 'params/layer2/b.npy' in screen.eval("document.querySelector('#detail h2').textContent")
    assert screen.eval("document.querySelector('#rows .row.on').title") == 'params/layer2/b.npy'
    screen.eval("location.hash = '#params/layer0/a.npy'")
    screen.wait("document.querySelector('#detail h2').textContent.includes('params/layer0/a.npy')")
    screen.eval("choose(all.find(n => n.path === 'params/layer3/a.npy'))")
    assert screen.eval('location.hash') == '#params/layer3/a.npy'
    assert screen.eval("document.querySelector('#rows .row.on a.link').getAttribute('href')") == '#params/layer3/a.npy'
    assert screen.complaints() == []


def test_a_chosen_leaf_keeps_its_neighbours_and_its_histogram_is_in_sight(run, screen, tmp_path):
    run('report', SAMPLE / '1000/state', tmp_path / 'r.html')
    screen.open(address(tmp_path / 'r.html'), "document.querySelectorAll('#rows .row').length")
    screen.eval("choose(all.find(n => n.path === 'params'))")
    leaves = "boxes.filter(b => !b.node.children && b.w > 3 && b.h > 3).map(b => b.node.path)"
    before = screen.eval(leaves)
    for path in before:
        screen.eval(f"reveal(all.find(n => n.path === {path!r}))")
        assert set(screen.eval(leaves)) == set(before)
    # From a link the map comes as near as is needed to see it, and no nearer.
    for path in ('params/embed/table.npy', 'opt_state/0/mu/norm/scale.npy'):
        screen.open('about:blank')
        screen.open(address(tmp_path / 'r.html') + '#' + path, "document.querySelectorAll('#rows .row.on').length")
        assert screen.eval('boxes.some(b => isIn(chosen, b.node))')
        assert screen.eval('boxes.filter(b => !b.node.children).length') > 1
        top, bottom, n = screen.eval("""(() => { const r = document.getElementById('hist').getBoundingClientRect();
            return [r.top, r.bottom, document.querySelectorAll('#hist rect').length]; })()""")
        assert 0 < top < bottom <= 900 and n == 48
    assert screen.complaints() == []


def test_twenty_thousand_leaves_keep_their_colours(mount, screen, cases):
    """The map of the whole: most of it is in the colour of a dtype, not grey, nor the lines between."""
    m = mount(cases('leaves-20000').path)
    screen.open(address(m / '.html'), "document.querySelectorAll('#rows .row').length")
    part = screen.eval("""(() => {
        const c = document.getElementById('tree'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        let n = 0;
        for (let i = 0; i < d.length; i += 4)
            n += Math.max(d[i], d[i + 1], d[i + 2]) - Math.min(d[i], d[i + 1], d[i + 2]) > 24;
        return n / (d.length / 4); })()""")
    assert part > 0.6
    assert screen.complaints() == []


def test_a_page_of_steps(run, screen, faulty, tmp_path):
    for step in (8, 9):
        run('save', SAMPLE / '1000/state/params', tmp_path / f'ckpts/{step}')
    run('report', tmp_path / 'ckpts', tmp_path / 'steps.html')
    screen.open(address(tmp_path / 'steps.html'), "document.querySelectorAll('#rows tr').length")
    rows = screen.eval("[...document.querySelectorAll('#rows tr')].map(r => [...r.children].map(c => c.textContent))")
    assert [row[0] for row in rows] == ['7', '8', '9'] and [row[7:9] for row in rows] == [['3', '1'], ['', ''], ['', '']]
    assert screen.eval("document.getElementById('health').className") == 'bad'
    assert 'the first is 7' in screen.eval("document.getElementById('health').textContent")
    assert screen.eval("document.querySelectorAll('svg circle').length") == 6
    assert screen.complaints() == []
