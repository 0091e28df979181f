/** Pages live behind `#/name/argument?key=value`, so that any server path will do. */

export interface Route {
  page: string;
  argument: string;
  query: URLSearchParams;
}

export interface Page {
  element: HTMLElement;
  /** Ends all polls and watches. */
  stop(): void;
  /** Takes another address of the same page; without it the page is made anew. */
  route?(route: Route): void;
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [page = '', ...rest] = path.split('/');
  return { page, argument: decodeURIComponent(rest.join('/')), query: new URLSearchParams(query) };
}

export function link(page: string, argument = '', query: Record<string, string> = {}): string {
  const parameters = new URLSearchParams(query).toString();
  const path = argument === '' ? page : `${page}/${encodeURIComponent(argument)}`;
  return `#/${path}${parameters === '' ? '' : `?${parameters}`}`;
}
