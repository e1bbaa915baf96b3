/**
 * The page, in one browser beside one service (opened.ts). Each file has the tests of a subject; they run in this order, since
 * the last of them change what the others look at.
 */
import "./views.ts";
import "./filters.ts";
import "./sessions.ts";
import "./roles.ts";
import "./names.ts";
import "./other-sites.ts";
import "./limits.ts";
import "./inventory.ts";
import "./keyboard.ts";
import "./changes.ts";
import "./forms.ts";
import "./waiting-forms.ts";
import "./waits.ts";
