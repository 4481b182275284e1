"""The one kind of error that a user can mend."""


class UserError(Exception):
    """A mistake of the user, or of the machine: one sentence with the remedy.

    The command line and the pytest plugin print it without a traceback and end with a non-zero status; they
    treat `repro.recipe.RecipeError` alike.
    """
