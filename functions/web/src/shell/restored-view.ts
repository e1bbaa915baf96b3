/** Restores the view after single sign-on. A view's address is in the URL fragment, which redirects drop, so session storage keeps
 * it.
 */
const KEY = "place";

export const rememberPlace = (): void => sessionStorage.setItem(KEY, location.hash);

/** Must be called before the router reads the address. */
export function restorePlace(): void {
  const place = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  if (place !== null && location.hash === "") history.replaceState(null, "", place || "#/");
}
