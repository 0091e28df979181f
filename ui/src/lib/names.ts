import type { Names } from '../api/types';

/** What people call nodes, interfaces, hosts and drop reasons. Ids stay where there is no name. */
class NameTable {
  private nodes = new Map<number, string>();
  private interfaces = new Map<string, string>();
  private hosts = new Map<string, string>();
  private reasons = new Map<number, string>();
  private shown = '';
  /** Grows with each change: what shows names is drawn again. */
  version = 0;

  set(names: Names): void {
    const text = JSON.stringify(names);
    if (text === this.shown) return;
    this.shown = text;
    this.version += 1;
    const named = names.nodes.flatMap(({ node, name }) => (name === null ? [] : [[node, name] as const]));
    this.nodes = new Map(named);
    this.interfaces = new Map(
      names.nodes.flatMap(({ node, interfaces }) =>
        interfaces.map((one) => [`${node}/${one.interface}`, one.name] as const),
      ),
    );
    this.reasons = new Map(names.drop_reasons.map(({ code, name }) => [code, name]));
    this.hosts = new Map(names.hosts.map(({ address, name }) => [address, name]));
  }

  node(id: number): string {
    return this.nodes.get(id) ?? String(id);
  }

  interface(node: number | null, id: number): string {
    return this.interfaces.get(`${node}/${id}`) ?? String(id);
  }

  /** The name of a drop reason, or its code: `link down`, `reason 71`. */
  reason(code: number): string {
    const name = this.reasons.get(code);
    return name === undefined ? `reason ${code}` : reasonName(name);
  }

  /** The name of a host, or its address. */
  host(address: string): string {
    return this.hosts.get(address) ?? address;
  }
}

/** The name of a drop reason as pages show it; filters accept it, too. */
export function reasonName(name: string): string {
  return name.replaceAll('_', ' ');
}

export const names = new NameTable();
