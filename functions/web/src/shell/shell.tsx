/** The frame around every view: header, navigation, and notices about API calls. */
import {
  Button,
  Menu,
  MenuDivider,
  MenuGroup,
  MenuGroupHeader,
  MenuItem,
  MenuItemLink,
  MenuList,
  MenuPopover,
  MenuTrigger,
  Spinner,
} from "@fluentui/react-components";
import { DarkThemeRegular, NavigationRegular, PersonRegular } from "@fluentui/react-icons";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { useCurrentUser } from "../api/access.ts";
import { api } from "../api/client.ts";
import { readFromEntry, storeInEntry } from "../parts/history-entry.ts";
import { Routes, useLocation } from "../parts/router.tsx";
import { useIsNarrow } from "../parts/width.ts";
import { titleOf, VIEWS } from "../views/views.ts";
import { Breadcrumbs } from "./breadcrumbs.tsx";
import { FinishedChanges } from "./finished-changes.tsx";
import { Navigation } from "./navigation.tsx";
import { PRODUCT } from "./product.ts";
import { RateLimitNotice } from "./rate-limit-notice.tsx";
import { Search } from "./search.tsx";
import { useStyles } from "./styles.ts";
import { chooseTheme, useIsDark } from "./theme.ts";
import { ForRoles, NoSuchView, ViewBoundary } from "./view-failed.tsx";

/** The views with their permission check. Their code is loaded when they are first shown. */
const ROUTES = VIEWS.map(({ path, needs, load }) => {
  const View = lazy(load);
  return {
    path,
    element: (
      <ForRoles needs={needs}>
        <View />
      </ForRoles>
    ),
  };
});

/** The page of a signed-in user: header, navigation and the view of the current address. */
export function Shell() {
  const styles = useStyles();
  const isNarrow = useIsNarrow();
  const [isOpen, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const { pathname } = useLocation();
  const title = titleOf(pathname);

  // Moves the focus to the new view, for screen readers and keyboard users, and restores the scroll position after Back. The
  // first rendering and a change of filters don't change the path, so they move nothing.
  const shownPathname = useRef(pathname);
  useEffect(() => {
    document.title = title === undefined ? PRODUCT : `${title} - ${PRODUCT}`;
    if (shownPathname.current !== pathname) {
      main.current?.focus();
      main.current?.scrollTo({ top: readFromEntry<number>(SCROLL_TOP) ?? 0 });
    }
    shownPathname.current = pathname;
  }, [pathname, title]);

  return (
    <div className={styles.page}>
      <Button className={styles.skip} onClick={() => main.current?.focus()}>
        Skip to content
      </Button>
      <header className={styles.header}>
        {isNarrow && (
          <Button appearance="subtle" icon={<NavigationRegular />} aria-label="Views" onClick={() => setOpen(true)} />
        )}
        <span className={styles.product}>{PRODUCT}</span>
        <Search isNarrow={isNarrow} />
        <ThemeButton />
        <PersonMenu />
      </header>
      <RateLimitNotice />
      <FinishedChanges />
      <div className={styles.body}>
        <Navigation isNarrow={isNarrow} isOpen={isOpen || !isNarrow} close={() => setOpen(false)} />
        <main
          className={styles.main}
          ref={main}
          tabIndex={-1}
          id="main"
          // Scrolling within the view, such as in a table, is ignored.
          onScroll={({ currentTarget, target }) =>
            target === currentTarget && storeInEntry(SCROLL_TOP, currentTarget.scrollTop)
          }
        >
          <Breadcrumbs pathname={pathname} />
          {/* The key removes a failed view when the user opens another one. */}
          <ViewBoundary key={pathname}>
            <Suspense fallback={<Spinner label="Loading" />}>
              <Routes routes={ROUTES} otherwise={<NoSuchView />} />
            </Suspense>
          </ViewBoundary>
        </main>
      </div>
    </div>
  );
}

/** Name of the stored scroll position. */
const SCROLL_TOP = "scrollTop";

function ThemeButton() {
  const otherTheme = useIsDark() ? "light" : "dark";
  return (
    <Button
      appearance="subtle"
      icon={<DarkThemeRegular />}
      aria-label={`Switch to ${otherTheme} theme`}
      onClick={() => chooseTheme(otherTheme)}
    />
  );
}

/** The menu with the signed-in user, a link to the API documentation, and sign-out. */
function PersonMenu() {
  const { username, role, tier } = useCurrentUser();
  // Leaving or reloading the page clears everything that was read or entered from memory.
  const signOut = api.useMutation("post", "/auth/logout", {
    onSettled: (body) => (body?.logoutUrl ? location.assign(body.logoutUrl) : location.reload()),
  });
  return (
    <Menu>
      <MenuTrigger disableButtonEnhancement>
        <Button appearance="subtle" icon={<PersonRegular />} aria-label={`Signed in as ${username}`} />
      </MenuTrigger>
      <MenuPopover>
        <MenuList>
          <MenuGroup>
            <MenuGroupHeader>
              {username}, {role}
              {tier === "pro" ? ", PRO" : ""}
            </MenuGroupHeader>
            <MenuItemLink href="/docs">API documentation</MenuItemLink>
          </MenuGroup>
          <MenuDivider />
          <MenuItem onClick={() => signOut.mutate({ body: { everywhere: false, apiTokens: false } })}>
            Sign out
          </MenuItem>
        </MenuList>
      </MenuPopover>
    </Menu>
  );
}
