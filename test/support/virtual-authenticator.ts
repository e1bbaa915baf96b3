import type { Page } from "playwright-core";

/**
 * Gives a page Chromium's virtual authenticator, so that the page can create and use passkeys without a device or a person.
 * https://chromedevtools.github.io/devtools-protocol/tot/WebAuthn/
 */
export async function addVirtualAuthenticator(page: Page): Promise<void> {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("WebAuthn.enable");
  await devtools.send("WebAuthn.addVirtualAuthenticator", {
    options: {
      protocol: "ctap2",
      transport: "internal",
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
}
