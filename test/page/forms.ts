import type { Locator, Page } from "playwright-core";
import { expect } from "vitest";
import { IS_CAMPAIGN } from "../support/cases.ts";
import { fieldOf, fillIn } from "./fill-in.ts";
import { FORMS, type FormCase, SECRET, type Step } from "./form-cases.ts";
import { clientOf, service, show, visit, withPlanted } from "./opened.ts";

const FIELD_MS = 120_000;
const SAMPLE = ["a rule by ServiceNow", "what is watched", "a B2C tenant"];
const chosen = Object.entries(FORMS).filter(([name]) => IS_CAMPAIGN || SAMPLE.includes(name));

/**
 * What was refused is said in the words of the problem document: at its field, which is gone on with, or for the form as a
 * whole with the request to ask about.
 */
async function isRefused(page: Page, dialog: Locator, { wrong, wrongField, press }: Step): Promise<void> {
  await fillIn(dialog, wrong!);
  const [answer] = await Promise.all([
    page.waitForResponse((response) => response.request().method() !== "GET"),
    dialog.getByRole("button", { name: press[0]!, exact: true }).click(),
  ]);
  const { detail, instance, errors = [] } = await answer.json();
  expect([answer.status(), answer.ok()]).toEqual([answer.status(), false]);
  if (wrongField === undefined) {
    await dialog.getByText(detail).waitFor();
    await dialog.getByText(`Request ${instance}`).waitFor();
    return;
  }
  const field = fieldOf(dialog, wrongField);
  await expect
    .poll(() => field.getAttribute("aria-invalid"), {
      message: `${detail} ${JSON.stringify(errors)}`,
      timeout: FIELD_MS,
    })
    .toBe("true");
  const ids = (await field.getAttribute("aria-describedby"))!.split(" ");
  const said = (await Promise.all(ids.map((id) => page.locator(`[id="${id}"]`).textContent()))).join(" ");
  expect(errors.filter(({ message }: { message: string }) => said.includes(message))).not.toEqual([]);
  await expect.poll(() => field.evaluate((element) => element === element.ownerDocument.activeElement)).toBe(true);
}

async function work(page: Page, step: Step): Promise<void> {
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: step.open, exact: true }).first().click();
  await dialog.waitFor();
  if (step.wrong) await isRefused(page, dialog, step);
  if (step.leaves) {
    await dialog.getByRole("button", { name: "Cancel" }).click();
    return await dialog.waitFor({ state: "hidden" });
  }
  await fillIn(dialog, step.typed ?? {});
  for (const button of step.press) await dialog.getByRole("button", { name: button, exact: true }).click();
  if (step.says) {
    await dialog.getByText(step.says).first().waitFor();
    await dialog.getByRole("button", { name: "Close", exact: true }).click();
  }
  await dialog.waitFor({ state: "hidden" });
  expect(await page.getByText("had been sent when its form was closed").count()).toBe(0);
  await step.seen?.();
}

/** Everything that the page remembers, as one text: address, storage, the answers and requests that are kept, what is drawn. */
const remembered = async (page: Page): Promise<string> =>
  await (await clientOf(page)).evaluate((client) => {
    // biome-ignore lint/suspicious/noExplicitAny: what React Query keeps
    const states = (cache: any) => cache.getAll().map(({ queryKey, state }: any) => ({ queryKey, state }));
    // biome-ignore lint/suspicious/noExplicitAny: as above
    const fields = [...document.querySelectorAll("input, textarea")].map(({ value }: any) => value);
    return JSON.stringify([
      location.href,
      history.state,
      { ...localStorage },
      { ...sessionStorage },
      states(client.getQueryCache()),
      states(client.getMutationCache()),
      document.documentElement.outerHTML,
      fields,
    ]);
  });

async function fill(name: string, { left, view, steps }: FormCase): Promise<void> {
  for (const path of (await left?.()) ?? []) await service.admin("DELETE", path);
  const { page, complaints, requested } = await visit("/#/license");
  page.setDefaultTimeout(FIELD_MS);
  await page.getByRole("heading", { name: "Licence", exact: true }).waitFor();
  await show(page, typeof view === "string" ? view : await view());
  const secrets = [SECRET];
  for (const step of steps) {
    if (step.again) await page.reload();
    if (step.view) await show(page, await step.view());
    if (step.first) await page.getByRole("button", { name: step.first }).first().click();
    secrets.push(...secretsOf(step));
    await work(page, step).catch((error: Error) => {
      error.message = `${name}, ${step.open}: ${error.message}\n${complaints.join("\n")}`;
      throw error;
    });
  }
  const kept = [await remembered(page), ...requested, ...complaints].join("\n");
  expect(kept).toContain("/auth/me");
  for (const secret of secrets) expect(kept.includes(secret), `${name} keeps ${secret.slice(0, 12)}`).toBe(false);
  // What was refused is an error to the browser; nothing else may be one.
  expect(
    complaints.filter(
      (text) => !/^http\S+ \{.*"code":"(invalidRequest|notFound|conflict)"|status of 4(00|04|09) /.test(text),
    ),
  ).toEqual([]);
}

/** What is typed into fields for secrets. */
const secretsOf = ({ typed = {}, wrong = {} }: Step): string[] =>
  Object.entries({ ...wrong, ...typed }).flatMap(([label, value]) =>
    /secret|password|token|key file/i.test(label) && typeof value === "string" && value.length > 11 ? [value] : [],
  );

withPlanted.each(chosen)("%s is filled in, saved, changed and removed", fill);
