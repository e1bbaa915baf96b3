/**
 * Signs people in at the simulated identity provider, like a browser: it sends cookies back, follows redirects, and submits the
 * form on which a person is selected.
 */
export class ProviderVisitor {
  readonly #cookies = new Map<string, string>();

  /**
   * Opens the provider's address that the service redirected to, and selects a person.
   *
   * @param address - The provider's address.
   * @param person - The ID of a person in `infra/simulated-cloud/idp/people.ts`. An empty ID cancels the sign-in.
   * @returns The address on another host to which the provider redirects the browser. The address is not opened.
   * @throws {Error} With the provider's response, if the provider does not ask who signs in.
   */
  async choose(address: string, person: string): Promise<string> {
    const { origin } = new URL(address);
    const page = await this.#follow(origin, address);
    if (page.left !== undefined) return page.left;
    if (!page.text.includes('name="person"')) throw new Error(`The provider answered ${page.status}: ${page.text}`);
    const form = new URLSearchParams({ person }).toString();
    const chosen = await this.#follow(origin, page.address, form);
    if (chosen.left === undefined) throw new Error(`The provider answered ${chosen.status}: ${chosen.text}`);
    return chosen.left;
  }

  /**
   * Opens the provider's sign-out address and confirms.
   *
   * @returns The address on another host to which the provider redirects the browser, or "nobody is signed in".
   * @throws {Error} With the provider's response, if the provider rejects the request.
   */
  async signOut(address: string): Promise<string> {
    const { origin } = new URL(address);
    const page = await this.#follow(origin, address);
    const xsrf = /name="xsrf" value="([^"]*)"/.exec(page.text)?.[1];
    if (page.status !== 200 || xsrf === undefined)
      throw new Error(`The provider answered ${page.status}: ${page.text}`);
    if (!page.text.includes("op.logoutForm")) return "nobody is signed in";
    const form = new URLSearchParams({ xsrf, logout: "yes" }).toString();
    const confirmed = await this.#follow(origin, `${origin}/session/end/confirm`, form);
    if (confirmed.left === undefined) throw new Error(`The provider answered ${confirmed.status}: ${confirmed.text}`);
    return confirmed.left;
  }

  /** Opens an address and follows its redirects while they stay at `origin`. `left` is the first address elsewhere. */
  async #follow(origin: string, start: string, form?: string) {
    let [address, body] = [start, form];
    for (;;) {
      const answer = await fetch(address, {
        method: body === undefined ? "GET" : "POST",
        redirect: "manual",
        headers: {
          cookie: [...this.#cookies].map(([name, value]) => `${name}=${value}`).join("; "),
          ...(body !== undefined && { "content-type": "application/x-www-form-urlencoded" }),
        },
        ...(body !== undefined && { body }),
      });
      for (const cookie of answer.headers.getSetCookie()) {
        const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie)!;
        if (value === "") this.#cookies.delete(name!);
        else this.#cookies.set(name!, value!);
      }
      const text = await answer.text();
      const location = answer.headers.get("location");
      if (location === null) return { address, status: answer.status, text, left: undefined };
      const next = new URL(location, address);
      if (next.origin !== origin) return { address, status: answer.status, text, left: next.href };
      [address, body] = [next.href, undefined];
    }
  }
}
