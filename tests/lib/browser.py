# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over a pair of pipes: no driver program, no package."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import time


def program():
    """The browser's path, or None."""
    return shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')


class Browser:
    def __init__(self, directory, width=1280, height=800, seconds=120):
        self.seconds, self.number, self.rest = seconds, 0, b''
        self.events = []
        to_child, self.write_fd = os.pipe()
        self.read_fd, from_child = os.pipe()
        # The browser's end of the pipes are descriptors 3 and 4, whatever they are here.
        shell = f'exec 3<&{to_child} 4>&{from_child}; exec "$@"'
        self.process = subprocess.Popen(
            ['bash', '-c', shell, 'bash', program(), '--headless=new', '--no-sandbox', '--disable-gpu',
             '--disable-dev-shm-usage', '--hide-scrollbars', '--no-first-run', '--remote-debugging-pipe',
             f'--user-data-dir={directory}', f'--window-size={width},{height}', 'about:blank'],
            pass_fds=(to_child, from_child), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(pathlib.Path(directory).with_suffix('.log'), 'w'))
        os.close(to_child)
        os.close(from_child)
        self.session = self.target = None
        self.page(width, height)

    def page(self, width, height):
        """An empty page of that size in place of the one that was there, of which nothing is known any more."""
        self.session, old = None, self.target
        self.target = self.call('Target.createTarget', url='about:blank')['targetId']
        if old:
            self.call('Target.closeTarget', targetId=old)
        self.session = self.call('Target.attachToTarget', targetId=self.target, flatten=True)['sessionId']
        self.events = []
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(domain + '.enable')
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1,
                  mobile=False)
        return self

    def _next(self, end):
        """The next message from the browser."""
        while b'\0' not in self.rest:
            if not select.select([self.read_fd], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError('the browser does not answer')
            more = os.read(self.read_fd, 1 << 20)
            if not more:
                raise EOFError(f'the browser ended with {self.process.poll()}')
            self.rest += more
        message, _, self.rest = self.rest.partition(b'\0')
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params}
        if self.session:
            message['sessionId'] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b'\0')
        end = time.monotonic() + self.seconds
        while True:
            got = self._next(end)
            if got.get('id') == self.number:
                if 'error' in got:
                    raise RuntimeError(f'{method}: {got["error"]}')
                return got['result']
            # A page that was closed may still have something to say.
            if got.get('sessionId') == self.session:
                self.events.append(got)

    def open(self, url, ready='document.readyState === "complete"'):
        """Seconds until the page says that it is ready."""
        start = time.monotonic()
        self.call('Page.navigate', url=url)
        self.wait(ready)
        return time.monotonic() - start

    def wait(self, condition):
        end = time.monotonic() + self.seconds
        while not self.eval(f'!!(document.documentElement && ({condition}))'):
            if time.monotonic() > end:
                raise TimeoutError(f'never true: {condition}')
            time.sleep(0.01)

    def eval(self, text):
        got = self.call('Runtime.evaluate', expression=text, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in got:
            raise RuntimeError(got['exceptionDetails'].get('exception', {}).get('description', str(got)))
        return got['result'].get('value')

    def complaints(self):
        """Exceptions, console errors and failed loads so far."""
        self.eval('1')
        out = []
        for e in self.events:
            if e['method'] == 'Runtime.exceptionThrown':
                out.append(str(e['params']['exceptionDetails']))
            elif e['method'] == 'Log.entryAdded' and e['params']['entry']['level'] in ('error', 'warning'):
                out.append(str(e['params']['entry']))
            elif e['method'] == 'Runtime.consoleAPICalled' and e['params']['type'] in ('error', 'warning', 'assert'):
                out.append(str(e['params']['args']))
            elif e['method'] == 'Network.loadingFailed':
                out.append(str(e['params']))
        return out

    def requests(self):
        """Addresses that were asked for."""
        return [e['params']['request']['url'] for e in self.events if e['method'] == 'Network.requestWillBeSent']

    def click(self, x, y, count=1):
        for kind in ('mouseMoved', 'mousePressed', 'mouseReleased'):
            self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left', clickCount=count)

    def type(self, text):
        self.call('Input.insertText', text=text)

    def screenshot(self, path):
        png = self.call('Page.captureScreenshot', format='png')['data']
        pathlib.Path(path).write_bytes(base64.b64decode(png))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write_fd)
        os.close(self.read_fd)
