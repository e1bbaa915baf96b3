import type { ProviderSession } from "../access/user.ts";
import type { SsoConfiguration } from "./configuration.ts";
import type { SignedInPerson } from "./person.ts";
import type { SignInRequest } from "./sign-in-requests.ts";

/** The response of an identity provider, sent through the browser. */
export interface Callback {
  /** Query parameters or form fields. */
  parameters: URLSearchParams;
}

/** Result of one step of a configuration's test. */
export interface Check {
  /**
   * `address`: the issuer can be reached, or with SAML, the sign-in URL and the entity ID are set. `document`: the discovery
   * document. `keys`: the keys or certificates with which the provider signs. `client`: the provider accepts the client and its
   * secret.
   */
  name: "address" | "document" | "keys" | "client";
  passed: boolean;
  /** The result, or how to fix the problem. */
  detail: string;
}

/** A sign-in protocol: OpenID Connect or SAML. */
export interface Protocol {
  /**
   * Returns the URL to which the browser is redirected to sign in.
   *
   * @param origin - The service's own origin.
   * @throws {SignInRefused} providerUnreachable, badResponse
   */
  begin(config: SsoConfiguration, request: SignInRequest, origin: string): Promise<URL>;
  /**
   * Verifies the response and returns the person who signed in.
   *
   * @throws {SignInRefused}
   */
  complete(
    config: SsoConfiguration,
    request: SignInRequest,
    callback: Callback,
    origin: string,
  ): Promise<SignedInPerson>;
  /**
   * Returns the URL that ends the session at the provider. Undefined if the provider has none, or does not answer now.
   *
   * @throws {SignInRefused} secretUnreadable
   */
  logoutUrl(config: SsoConfiguration, session: ProviderSession, origin: string): Promise<URL | undefined>;
}
