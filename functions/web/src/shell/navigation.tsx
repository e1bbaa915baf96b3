import { NavDrawer, NavDrawerBody, NavItem } from "@fluentui/react-components";
import { useRoleAllows } from "../api/access.ts";
import { createHref } from "../parts/address.ts";
import { useLocation } from "../parts/router.tsx";
import { VIEWS, viewOf } from "../views/views.ts";
import { useStyles } from "./styles.ts";

/**
 * The navigation of the page: links to the views that the user's role can open. A view that needs a license says so when it is
 * opened. On a narrow screen, the navigation covers the view until `close` is called.
 */
export function Navigation({ isNarrow, isOpen, close }: { isNarrow: boolean; isOpen: boolean; close(): void }) {
  const may = useRoleAllows();
  const { pathname } = useLocation();
  const allowedViews = VIEWS.filter(({ title, needs }) => title !== undefined && may(needs));
  return (
    <NavDrawer
      className={useStyles().navigation}
      type={isNarrow ? "overlay" : "inline"}
      open={isOpen}
      onOpenChange={(_, { open }) => open || close()}
      selectedValue={viewOf(pathname)?.title ?? ""}
      aria-label="Views"
    >
      <NavDrawerBody>
        {allowedViews.map(({ path, title }) => (
          <NavItem key={path} value={title!} as="a" href={createHref(path)} onClick={close}>
            {title}
          </NavItem>
        ))}
      </NavDrawerBody>
    </NavDrawer>
  );
}
