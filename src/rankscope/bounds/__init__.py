"""What theory promises about separation ranks: every bound carries its theorem."""

from rankscope.bounds.attention import multiset_lower_bound as multiset_lower_bound
from rankscope.bounds.attention import published_lower_bound as published_lower_bound
from rankscope.bounds.attention import published_upper_bound as published_upper_bound
from rankscope.bounds.attention import quadric_lower_bound as quadric_lower_bound
from rankscope.bounds.attention import word_upper_bound as word_upper_bound
from rankscope.bounds.budget import best_chain_degree as best_chain_degree
from rankscope.bounds.budget import best_degree as best_degree
from rankscope.bounds.budget import budgets_where_three_loses as budgets_where_three_loses
from rankscope.bounds.convolutional import Circuit as Circuit
from rankscope.bounds.convolutional import Pooling as Pooling
from rankscope.bounds.convolutional import (
    convolutional_cp_lower_bound as convolutional_cp_lower_bound,
)
from rankscope.bounds.convolutional import convolutional_upper_bound as convolutional_upper_bound
from rankscope.bounds.convolutional import pooling_lower_bound as pooling_lower_bound
from rankscope.bounds.convolutional import pooling_upper_bound as pooling_upper_bound
from rankscope.bounds.counting import counting_terms as counting_terms
from rankscope.bounds.counting import counting_upper_bound as counting_upper_bound
from rankscope.bounds.counting import narrow_counting_upper_bound as narrow_counting_upper_bound
from rankscope.bounds.degree import fully_connected_upper_bound as fully_connected_upper_bound
from rankscope.bounds.embedding import embedding_lower_growth as embedding_lower_growth
from rankscope.bounds.embedding import embedding_upper_growth as embedding_upper_growth
from rankscope.bounds.heads import heads_upper_bound as heads_upper_bound
from rankscope.bounds.monomials import monomial_lower_bound as monomial_lower_bound
from rankscope.bounds.recurrent import recurrent_upper_bound as recurrent_upper_bound
from rankscope.bounds.recurrent import start_end_grid_upper_bound as start_end_grid_upper_bound
from rankscope.bounds.recurrent import start_end_lower_bound as start_end_lower_bound
from rankscope.bounds.recurrent import start_end_upper_bound as start_end_upper_bound
from rankscope.bounds.shallow import shallow_lower_bound as shallow_lower_bound
from rankscope.bounds.shallow import shallow_upper_bound as shallow_upper_bound
from rankscope.bounds.sizes import AttentionSizes as AttentionSizes
from rankscope.bounds.sparse_polynomial import (
    sparse_polynomial_lower_bound as sparse_polynomial_lower_bound,
)
from rankscope.bounds.sparse_polynomial import (
    sparse_polynomial_upper_bound as sparse_polynomial_upper_bound,
)
from rankscope.bounds.tensor_train import alkin_lower_bound as alkin_lower_bound
from rankscope.bounds.tensor_train import (
    different_cores_lower_bound as different_cores_lower_bound,
)
from rankscope.bounds.tensor_train import equal_cores_lower_bound as equal_cores_lower_bound
from rankscope.bounds.tensor_train import left_right_upper_bound as left_right_upper_bound
from rankscope.bounds.tensor_train import odd_even_upper_bound as odd_even_upper_bound
from rankscope.bounds.tensor_train import tensor_train_upper_bound as tensor_train_upper_bound
from rankscope.bounds.total_degree import total_degree_upper_bound as total_degree_upper_bound
