/**
 * Tests of the warning that nobody is notified of problems of the service itself: one service, whose hosts have different values
 * of the setting OPERATOR_ADDRESSES_SET, which the templates write.
 */
import { expect, test } from "vitest";
import { openBrowser } from "../support/browser.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";
import { createUsers } from "../support/users.ts";

const PASSWORD = "seven green bicycles uphill";
const WARNING = "Nobody is notified if this service fails.";

const withBrowser = test.skipIf(skipWithout("browser"));

withBrowser(
  "the overview warns administrators, and only them, that a deployment has no operator addresses",
  async () => {
    const [service, context] = await Promise.all([
      Service.start({ env: { OPERATOR_ADDRESSES_SET: "false", LICENSE_KEY: await licence() } }),
      openBrowser(),
    ]);
    try {
      await createUsers(service, [{ username: "uma", password: PASSWORD, role: "user" }]);
      const { url: notifyingHost } = await service.addHost({ OPERATOR_ADDRESSES_SET: "true" });
      const page = await context.newPage();
      page.setDefaultTimeout(120_000);
      const readOverview = async (url: string, { username, password }: { username: string; password: string }) => {
        await context.clearCookies();
        await page.goto(url);
        await page.getByLabel("Username").fill(username);
        await page.getByLabel("Password").fill(password);
        await page.getByRole("button", { name: "Sign in" }).click();
        await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
        return await page.locator("main").innerText();
      };
      expect(await readOverview(service.url, ADMIN)).toContain(WARNING);
      expect(await readOverview(notifyingHost, ADMIN)).not.toContain(WARNING);
      expect(await readOverview(service.url, { username: "uma", password: PASSWORD })).not.toContain(WARNING);

      const ofUser = await service.call("GET", "/auth/me", {
        token: await service.signIn({ username: "uma", password: PASSWORD }),
      });
      expect([ofUser.status, ofUser.body.operatorAddressesSet]).toEqual([200, undefined]);
    } finally {
      await context.close();
      await service.stop();
    }
  },
);
