/** A page's address is `#/name/argument?key=value`: it does not depend on the server's path. */

export interface Route {
  page: string;
  argument: string;
  query: URLSearchParams;
}

export interface Page {
  element: HTMLElement;
  /** Ends all polls and watches. */
  stop(): void;
  /** Shows another address of the same page; without this method the page is created again. */
  route?(route: Route): void;
  /** `route` also shows another range; otherwise the page is created again for it. */
  followsRange?: boolean;
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [page = '', ...rest] = path.split('/');
  return { page, argument: decoded(rest.join('/')), query: new URLSearchParams(query) };
}

/** An address that a person typed may have a `%` that begins nothing. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function link(page: string, argument = '', query: Record<string, string> = {}): string {
  const parameters = new URLSearchParams(query).toString();
  const path = argument === '' ? page : `${page}/${encodeURIComponent(argument)}`;
  return `#/${path}${parameters === '' ? '' : `?${parameters}`}`;
}

/** A page, with its selection and time, at the address of another program. */
export function pageAt(address: string, hash: string): string {
  return `${address.replace(/\/+$/, '')}/${hash}`;
}
