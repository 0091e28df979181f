// The API with made-up data, and the built pages with the program's content policy. For development and the browser test.
//   node mock/server.mjs [--port 8179] [--empty] [--manager] [--large] [--token SECRET]
import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { alertNotes, alerts } from './alerts.mjs';
import * as answers from './answers.mjs';
import { dta } from './dta.mjs';
import { Fabric } from './fabric.mjs';
import { Large, largeAnswer } from './large.mjs';
import { Manager } from './manager.mjs';
import * as paths from './paths.mjs';
import * as queues from './queues.mjs';
import { traffic } from './traffic.mjs';
import { answer } from './sql.mjs';

const DIST = fileURLToPath(new URL('../dist', import.meta.url));
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
  "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };

/** Starts it; resolves to `{ url, fabric, manager, network, close }`. Port 0 selects a free one. */
export function start({ port = 0, empty = false, token = '', managed = false, large = false } = {}) {
  const manager = managed ? new Manager() : null;
  const network = large ? new Large() : null;
  const fabric = new Fabric(Math.floor(Date.now() / 1000) - 900);
  if (!empty) for (let i = 0; i < 900; i += 1) fabric.step();
  const timer = empty ? undefined : setInterval(() => fabric.step(), 1000);
  const notes = alertNotes();
  const server = createServer((request, response) =>
    serve({ fabric, empty, token, manager, network, notes }, request, response),
  );
  return new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => {
      const close = () => {
        clearInterval(timer);
        server.closeAllConnections();
        server.close();
      };
      resolve({ url: `http://127.0.0.1:${server.address().port}/`, fabric, manager, network, close });
    });
  });
}

function serve(state, request, response) {
  const url = new URL(request.url, 'http://localhost');
  response.setHeader('Content-Security-Policy', POLICY);
  response.setHeader('Cache-Control', 'no-store');
  if (!url.pathname.startsWith('/api/v1/')) return serveFile(url.pathname, response);
  const given = request.headers.authorization?.replace('Bearer ', '') ?? url.searchParams.get('token') ?? '';
  if (state.token !== '' && given !== state.token)
    return json(response, 401, { error: 'give the API token' });
  const path = url.pathname.slice('/api/v1/'.length);
  if (path === 'events/stream') return serveStream(state, url.searchParams, request, response);
  if (path === 'query') return serveQuery(state, request, response);
  if (/^alerts(\/|$)/.test(path))
    return withBody(request, (body) => {
      const answer = alerts(state.notes, request.method, path, url.searchParams, body);
      json(response, answer === null ? 404 : 200, answer ?? { error: `nothing is at ${url.pathname}` });
    });
  const [, flow] = /^flows\/([^/]+)/.exec(path) ?? [];
  if (flow !== undefined && !/^[\da-f]{16}$|>/.test(decodeURIComponent(flow)))
    return json(response, 400, { error: `"${flow}" is not a flow` });
  const found =
    (state.network && largeAnswer(state.network, path, url.searchParams)) ??
    read(state, path, url.searchParams);
  if (found !== null) return json(response, 200, found);
  const missing = () => json(response, 404, { error: `nothing is at ${url.pathname}` });
  if (state.manager === null) return missing();
  withBody(request, (body) => {
    const answer = state.manager.answer(request.method, path, request.headers, body);
    return answer === null ? missing() : json(response, ...answer);
  });
}

/** Calls `then` with the body of a request, read as JSON. */
function withBody(request, then) {
  let body = '';
  request.on('data', (chunk) => (body += chunk));
  request.on('end', () => then(JSON.parse(body || '{}')));
}

function read({ fabric, empty }, path, query) {
  if (path === 'status') return answers.status(fabric, empty);
  if (path === 'session') return { role: 'operate', name: null, needs_token: false, console: false };
  // As of a program that was just started: earlier rates come from the store.
  if (path === 'rates') return { rates: [] };
  if (path === 'activity') return answers.activity(fabric, query);
  if (path === 'names') return { nodes: [], hosts: [], drop_reasons: [] };
  if (path === 'paths/changes') return paths.changes(query);
  if (path === 'paths/uses') return paths.uses(query);
  if (path === 'losses') return paths.losses(query);
  const words = path.split('/').map(decodeURIComponent);
  const [name, id, part] = words;
  if (/^queues\/\d+$/.test(path)) return queues.burst(Number(path.slice('queues/'.length)), query);
  if (path === 'traffic') return traffic(query, empty);
  if (path === 'queues') return empty ? { ...queues.heat(query), rows: [], total: 0 } : queues.heat(query);
  // The empty mock has no collector memory.
  if (name === 'dta') return empty ? null : dta(fabric, words, query);
  if (name === 'flows' && part === 'latencies') return paths.latencies(query);
  if (name === 'flows' && part === 'history') return answers.history(fabric, id);
  if (name === 'flows' && id) return answers.flow(fabric, id, query);
  const list = answers[name];
  return ['nodes', 'links', 'flows', 'paths', 'events', 'rollups'].includes(name)
    ? empty
      ? { [name]: [], total: 0 }
      : list(fabric, query)
    : null;
}

function serveStream({ fabric }, query, request, response) {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  response.write(': hello\n\n');
  const listener = (event) => {
    if (answers.matches(event, query)) response.write(`data: ${JSON.stringify(event)}\n\n`);
  };
  fabric.listeners.add(listener);
  request.on('close', () => fabric.listeners.delete(listener));
}

function serveQuery({ fabric }, request, response) {
  withBody(request, ({ sql = '' }) => {
    const result = answer(fabric, sql);
    json(response, result.error ? 400 : 200, result);
  });
}

function serveFile(path, response) {
  const file = normalize(join(DIST, path === '/' ? 'index.html' : path));
  if (!file.startsWith(DIST) || !existsSync(file)) return json(response, 404, { error: `no file ${path}` });
  response.writeHead(200, { 'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream' });
  createReadStream(file).pipe(response);
}

function json(response, status, value) {
  response.writeHead(status, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify(value));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = (name, otherwise) => {
    const at = process.argv.indexOf(name);
    return at < 0 ? otherwise : process.argv[at + 1];
  };
  const port = Number(option('--port', '8179'));
  const [empty, managed, large] = ['--empty', '--manager', '--large'].map((name) =>
    process.argv.includes(name),
  );
  const mock = await start({ port, empty, managed, large, token: option('--token', '') });
  console.log(`mock of hopwise on ${mock.url}`);
}
