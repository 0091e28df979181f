import { parseExact } from './json';
import { notes, notesIn } from './notes';

const TOKEN_KEY = 'hopwise-token';
const PREFIX = 'api/v1/';
let timeoutMs = 15_000;

/** How long to wait for an answer from now on. */
export function waitFor(ms: number): void {
  timeoutMs = ms;
}

/** The server refused the request. `message` is its error message. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** No answer at all: the network or the program is down. */
export class Unreachable extends Error {}

export type Params = Record<string, string | number | null | undefined>;

export function token(): string {
  return sessionStorage.getItem(TOKEN_KEY) ?? '';
}

export function setToken(value: string): void {
  sessionStorage.setItem(TOKEN_KEY, value);
}

/** A token in the page's own address (`?token=…`) is stored for the session and removed from the address bar. */
export function adoptTokenFromAddress(): void {
  const query = new URLSearchParams(location.search);
  const given = query.get('token');
  if (given === null) return;
  setToken(given);
  query.delete('token');
  const rest = query.toString();
  history.replaceState(null, '', `${location.pathname}${rest === '' ? '' : `?${rest}`}${location.hash}`);
}

/** Address of an endpoint; parameters that are empty are left out. */
export function address(path: string, params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== '') query.set(name, String(value));
  }
  const text = query.toString();
  return PREFIX + path + (text === '' ? '' : `?${text}`);
}

async function request(path: string, init: RequestInit, params: Params): Promise<string> {
  const headers = new Headers(init.headers);
  if (token() !== '') headers.set('Authorization', `Bearer ${token()}`);
  const limit = AbortSignal.timeout(timeoutMs);
  const signal = init.signal ? AbortSignal.any([init.signal, limit]) : limit;
  let answer: Response;
  let body: string;
  try {
    answer = await fetch(address(path, params), { ...init, headers, signal });
    body = await answer.text();
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Unreachable('no answer from the hopwise program');
  }
  if (!answer.ok) throw new ApiError(answer.status, errorSentence(body, answer.status));
  notes.set(path, notesIn(answer.headers.get('hopwise-notes')));
  return body;
}

function errorSentence(body: string, status: number): string {
  try {
    const parsed = JSON.parse(body) as { error?: unknown };
    if (typeof parsed.error === 'string') return parsed.error;
  } catch {
    // Not JSON: the response is from a proxy.
  }
  return `the server answered with status ${status}`;
}

export async function get<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
  return JSON.parse(await request(path, signal ? { signal } : {}, params)) as T;
}

/** Under which condition a change is executed: that there is nothing of this name, or that it has this version. */
export type Condition = 'new' | { etag: string };

/** A request that changes something, with a JSON body. */
export async function send<T>(
  method: string,
  path: string,
  body?: unknown,
  condition?: Condition,
): Promise<T> {
  const headers: Record<string, string> = { 'Content-Type': 'application/json' };
  if (condition === 'new') headers['If-None-Match'] = '*';
  else if (condition) headers['If-Match'] = `"${condition.etag}"`;
  const init: RequestInit = { method, headers };
  if (body !== undefined) init.body = JSON.stringify(body);
  return JSON.parse(await request(path, init, {})) as T;
}

/** Like a GET, by POST with a JSON body; long integers in the answer stay exact, as strings. */
export async function postExact<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json' },
    ...(signal ? { signal } : {}),
  };
  return parseExact(await request(path, init, {})) as T;
}
