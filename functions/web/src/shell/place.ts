/**
 * Where a person was before single sign-on took them to another site. The views are addressed by the part after `#`, which
 * no redirect brings back.
 */
const KEY = "place";

export const rememberPlace = (): void => sessionStorage.setItem(KEY, location.hash);

/** To be called before the router reads the address. */
export function restorePlace(): void {
  const place = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  if (place !== null && location.hash === "") history.replaceState(null, "", place || "#/");
}
