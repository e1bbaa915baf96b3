/** Fills in fields of the page's forms by their labels, as a user does. */
import type { Locator } from "playwright-core";

/** Values by field label: text, the label of an option, or whether a checkbox is checked. */
export type FormInput = Record<string, string | boolean>;

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** Returns the field with this label, which can end with `*` for a required field. The label `*` returns the first field. */
export const fieldOf = (dialog: Locator, label: string) =>
  label === "*"
    ? dialog.locator("input, select, textarea").first()
    : dialog.getByLabel(new RegExp(`^${escaped(label)}\\*?$`)).first();

export async function fillIn(dialog: Locator, values: FormInput): Promise<void> {
  for (const [label, value] of Object.entries(values)) {
    const field = fieldOf(dialog, label);
    if (typeof value === "boolean") await field.setChecked(value);
    else if ((await field.evaluate((element) => element.tagName)) === "SELECT")
      await field.selectOption({ label: value });
    else await field.fill(value);
  }
}
