/**
 * Restores the view after single sign-on. The address of a view is in the URL fragment, which is lost in the redirects of the
 * sign-in, so it is stored in session storage.
 */
const STORAGE_KEY = "place";

/** Stores the address of the current view. Called before the browser leaves the page. */
export const storeView = (): void => sessionStorage.setItem(STORAGE_KEY, location.hash);

/** Opens the stored view. Must be called before the router reads the address. */
export function restoreView(): void {
  const fragment = sessionStorage.getItem(STORAGE_KEY);
  sessionStorage.removeItem(STORAGE_KEY);
  // A link with a fragment of its own wins. An empty fragment was stored for the first view.
  if (fragment !== null && location.hash === "") history.replaceState(null, "", fragment || "#/");
}
