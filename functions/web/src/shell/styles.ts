import { makeStyles, tokens } from "@fluentui/react-components";

/** Styles of the page's frame, the sign-in form and notices in place of a view. */
export const useStyles = makeStyles({
  page: { display: "flex", flexDirection: "column", height: "100dvh", overflow: "hidden" },
  header: {
    display: "flex",
    alignItems: "center",
    gap: tokens.spacingHorizontalS,
    padding: `${tokens.spacingVerticalXS} ${tokens.spacingHorizontalM}`,
    borderBottom: `1px solid ${tokens.colorNeutralStroke2}`,
    backgroundColor: tokens.colorNeutralBackground1,
    minHeight: "44px",
  },
  product: {
    flexGrow: 1,
    minWidth: 0,
    // Up to two lines on a phone.
    display: "-webkit-box",
    WebkitBoxOrient: "vertical",
    WebkitLineClamp: 2,
    overflow: "hidden",
    fontWeight: tokens.fontWeightSemibold,
  },
  navigation: { flexShrink: 0 },
  body: { display: "flex", flexGrow: 1, minHeight: 0 },
  main: {
    flexGrow: 1,
    minWidth: 0,
    overflow: "auto",
    // Text for screen readers only has an absolute position. Without this, it makes the whole document taller than the screen.
    position: "relative",
    padding: tokens.spacingHorizontalL,
    backgroundColor: tokens.colorNeutralBackground2,
    // Only the page itself focuses this element, when the view changes, so it needs no focus ring.
    outlineStyle: "none",
    "@media (max-width: 767px)": { padding: tokens.spacingHorizontalM },
  },
  /** The sign-in form over the current view. `within`: the card in it. */
  again: { width: "fit-content", padding: 0 },
  within: { boxShadow: "none", width: "min(360px, calc(100vw - 48px))" },
  /** The button "Skip to content", which is visible only while it has the focus. */
  skip: {
    position: "absolute",
    left: "-9999px",
    ":focus": { left: tokens.spacingHorizontalM, top: tokens.spacingVerticalM, zIndex: 1 },
  },
  /** A text in place of a view. */
  notice: {
    display: "flex",
    flexDirection: "column",
    alignItems: "flex-start",
    gap: tokens.spacingVerticalM,
    padding: tokens.spacingHorizontalXXL,
    overflowWrap: "anywhere",
  },
  /** The notice about the rate limit. */
  waiting: { flexShrink: 0 },
  signIn: {
    display: "grid",
    placeContent: "center",
    minHeight: "100dvh",
    padding: tokens.spacingHorizontalL,
    boxSizing: "border-box",
    backgroundColor: tokens.colorNeutralBackground2,
  },
  card: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalM,
    width: "min(360px, calc(100vw - 32px))",
    padding: tokens.spacingHorizontalXXL,
    boxSizing: "border-box",
    borderRadius: tokens.borderRadiusXLarge,
    boxShadow: tokens.shadow8,
    backgroundColor: tokens.colorNeutralBackground1,
  },

  form: { display: "flex", flexDirection: "column", gap: tokens.spacingVerticalM },
});
