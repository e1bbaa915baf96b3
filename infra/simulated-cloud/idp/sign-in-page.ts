import type { Person } from "./people.ts";

/**
 * Renders the sign-in page with a button for each person and one to cancel. The form sends `person`, which is empty if the user
 * cancels.
 */
export function signInPage(title: string, people: readonly Person[], hidden: Record<string, string> = {}): string {
  const hiddenFields = Object.entries(hidden).map(
    ([name, value]) => `<input type="hidden" name="${escapeHtml(name)}" value="${escapeHtml(value)}">`,
  );
  const buttons = people.map(
    ({ id, name, email, roles }) =>
      `<li><button name="person" value="${escapeHtml(id)}">${escapeHtml(name)}</button> ${escapeHtml(email)} ${escapeHtml(roles.join(", "))}</li>`,
  );
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>${escapeHtml(title)}</title>
<style>body{font:16px/2.2 system-ui;margin:3rem auto;max-width:44rem}ul{list-style:none;padding:0}button{font:inherit}</style>
<h1>${escapeHtml(title)}</h1>
<p>This simulated identity provider needs no password. Who signs in?</p>
<form method="post">
${hiddenFields.join("\n")}
<ul>
${buttons.join("\n")}
<li><button name="person" value="">Cancel</button></li>
</ul>
</form>
</html>
`;
}

/**
 * Renders the page that asks whether to sign out.
 * @param form - The provider's form with the ID `op.logoutForm`.
 */
export function signOutPage(form: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Sign out of Acme (OIDC)</title>
<h1>Sign out of Acme (OIDC)?</h1>
${form}
<button form="op.logoutForm" name="logout" value="yes">Sign out</button>
</html>
`;
}

export function escapeHtml(text: string): string {
  const names: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return text.replace(/[&<>"]/g, (character) => names[character]!);
}
