import type { SsoConfiguration } from "./configuration.ts";
import type { Person } from "./person.ts";
import type { SignInRequest } from "./requests.ts";

/** What an identity provider sent back by way of the browser. */
export interface Callback {
  /** The query, or the form's fields. */
  parameters: URLSearchParams;
}

/** One look at a configuration that is not saved yet. */
export interface Check {
  name: "address" | "document" | "keys" | "client";
  passed: boolean;
  /** What was found, or what to do about it. */
  detail: string;
}

/** A way of signing in with an identity provider. */
export interface Protocol {
  /**
   * Where a browser goes to sign in.
   *
   * @param origin - Our own origin.
   * @throws {SignInRefused} providerUnreachable, badResponse
   */
  begin(config: SsoConfiguration, request: SignInRequest, origin: string): Promise<URL>;
  /**
   * Who signed in there, after everything that was answered is proven.
   *
   * @throws {SignInRefused}
   */
  complete(config: SsoConfiguration, request: SignInRequest, callback: Callback, origin: string): Promise<Person>;
}
